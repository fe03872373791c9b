"""How the parts of a step share the machines."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.pipelining import Part, best_execution

ROLLOUT, REFERENCE, LEARNER = (
    Part(name=name, unit_s=unit_s) for name, unit_s in (("gen", 60), ("ref", 12), ("upd", 24))
)


def test_a_pipeline_takes_its_warm_up_and_the_bottleneck_for_every_further_piece() -> None:
    """T = warm-up + (B - 1) · bottleneck."""
    parts = [Part(name="a", unit_s=8.0, max_devices=1), Part(name="b", unit_s=16.0, max_devices=1)]
    found = best_execution(parts, 2, num_pieces=8)
    assert found.kind == "pipelined"
    assert (found.warm_up_s, found.interval_s) == (1.0 + 2.0, 2.0)
    assert found.time_s == 3.0 + 7 * 2.0


def test_two_devices_can_be_split() -> None:
    """The published search never gives the second half a single device, so it never splits two."""
    halves = [Part(name=name, unit_s=10.0, max_devices=1) for name in "ab"]
    assert best_execution(halves, 2, num_pieces=10).devices == {"a": 1, "b": 1}
    small = [Part(name="big", unit_s=70.0), Part(name="small", unit_s=10.0, max_devices=1)]
    assert best_execution(small, 8, num_pieces=100).devices == {"big": 7, "small": 1}


def test_parts_that_scale_share_everything_one_after_the_other() -> None:
    found = best_execution([ROLLOUT, REFERENCE, LEARNER], 4, num_pieces=1)
    assert found.kind == "phased"
    assert found.time_s == pytest.approx(96 / 4)
    assert set(found.devices.values()) == {4}


def test_switching_costs_make_a_pipeline_worth_it() -> None:
    parts = [ROLLOUT, REFERENCE, LEARNER]
    assert best_execution(parts, 8, num_pieces=64).kind == "phased"
    assert best_execution(parts, 8, num_pieces=64, switch_s=5.0).kind == "pipelined"


def test_what_every_piece_costs_argues_against_pieces() -> None:
    parts = [Part(name=name, unit_s=10.0, fixed_s=5.0, max_devices=1) for name in "ab"]
    assert best_execution(parts, 2, num_pieces=20).num_pieces == 1
    free = [Part(name=name, unit_s=10.0, max_devices=1) for name in "ab"]
    assert best_execution(free, 2, num_pieces=20).num_pieces == 20


def test_some_of_each_where_one_part_does_not_scale() -> None:
    """A generation that cannot use more than 4 devices runs beside two parts that take turns on the others."""
    parts = [Part(name="gen", unit_s=40.0, max_devices=4), REFERENCE, LEARNER]
    found = best_execution(parts, 8, num_pieces=50)
    assert found.kind == "mixed"
    assert found.devices["gen"] == 4
    assert found.devices["ref"] == found.devices["upd"] == 4


def test_too_few_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="1 devices are too few for big"):
        best_execution([Part(name="big", unit_s=1.0, min_devices=2)], 1)
    with pytest.raises(ValueError, match="at least one part"):
        best_execution([], 1)


@given(
    st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 2), st.integers(1, 4)), min_size=2, max_size=3),
    st.integers(1, 5),
    st.integers(1, 12),
    st.floats(0, 3),
)
def test_it_is_no_slower_than_any_plain_way(
    sizes: list[tuple[float, float, int]], num_devices: int, num_pieces: int, switch_s: float
) -> None:
    parts = [
        Part(name=str(n), unit_s=unit, fixed_s=fixed, max_devices=most) for n, (unit, fixed, most) in enumerate(sizes)
    ]
    best = best_execution(parts, num_devices, num_pieces=num_pieces, switch_s=switch_s).time_s
    phased = sum(part.seconds(num_devices) for part in parts) + switch_s * (len(parts) - 1)
    assert best <= phased + 1e-9
    for split in itertools.product(range(1, num_devices + 1), repeat=len(parts)):
        if sum(split) == num_devices:
            pieces = [part.seconds(devices, num_pieces) for part, devices in zip(parts, split, strict=True)]
            assert best <= sum(pieces) + (num_pieces - 1) * max(pieces) + 1e-9
