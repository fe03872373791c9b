"""The ledger: cases worked out by hand, and laws that hold for every life."""

from dataclasses import asdict, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.platforms.base import ReplicaLife
from controller.runs.ledger import AMOUNTS, Price, StageCost, account, add_ledgers
from controller.runs.stage_client import CallRecord
from shared.contracts.call import CallKey
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Purpose, Stage

PRICE = Price(cpu_hour_usd=36.0, gpu_hour_usd=3600.0)

LIFE = ReplicaLife(
    instance=InstanceId("rollout-1"),
    function="rollout",
    stages=(Stage.ROLLOUT,),
    revision="rollout-00001",
    num_cpus=2.0,
    num_gpus=0,
    scheduled_at=90.0,
    started_at=100.0,
    ready_at=110.0,
)


def call(started_at: float, ended_at: float, instance: str = "rollout-1") -> CallRecord:
    return CallRecord(
        key=CallKey(run="r", purpose=Purpose.TRAIN, step=0, stage=Stage.ROLLOUT),
        instance=instance,
        sent_at=started_at,
        received_at=ended_at,
        started_at=started_at,
        ended_at=ended_at,
        load_s=0.0,
        compute_s=ended_at - started_at,
        replica_started_at=100.0,
        replica_ready_at=110.0,
    )


def cost(*lives: ReplicaLife, calls: list[CallRecord] | None = None, start: float = 0, end: float = 200) -> StageCost:
    """Cost of the one function that the lives belong to."""
    [found] = account(lives, calls or [], start=start, end=end, price=PRICE).values()
    return found


def parts(found: StageCost) -> tuple[float, float, float, float]:
    """busy, idle, cold, draining."""
    return (found.busy_s, found.idle_s, found.cold_s, found.draining_s)


def test_cold_until_ready_then_idle_where_nothing_is_called() -> None:
    assert parts(cost(LIFE)) == (0, 90, 10, 0)


def test_busy_while_it_works_on_a_call() -> None:
    assert parts(cost(LIFE, calls=[call(120, 150), call(160, 165)])) == (35, 55, 10, 0)


def test_overlapping_calls_count_once() -> None:
    calls = [call(120, 150), call(130, 140), call(145, 170), call(170, 175)]
    assert parts(cost(LIFE, calls=calls)) == (55, 35, 10, 0)


def test_another_replicas_calls_do_not_count() -> None:
    assert parts(cost(LIFE, calls=[call(120, 150, instance="rollout-2")])) == (0, 90, 10, 0)


def test_draining_after_it_was_told_to_end_but_busy_while_it_finishes_a_call() -> None:
    life = replace(LIFE, draining_at=150.0, ended_at=180.0)
    assert parts(cost(life, calls=[call(140, 160)])) == (20, 30, 10, 20)


def test_one_that_never_got_ready_was_cold_all_its_life() -> None:
    assert parts(cost(replace(LIFE, ready_at=None, ended_at=130.0))) == (0, 0, 30, 0)
    assert parts(cost(replace(LIFE, ready_at=None, draining_at=120.0, ended_at=130.0))) == (0, 0, 30, 0)


def test_a_pending_one_holds_nothing() -> None:
    pending = replace(LIFE, started_at=None, ready_at=None)
    assert account([pending], [], start=0, end=200, price=PRICE) == {}


def test_lives_outside_the_window_cost_nothing() -> None:
    for start, end in ((0, 100), (190, 200)):
        assert account([replace(LIFE, ended_at=190.0)], [], start=start, end=end, price=PRICE) == {}


def test_only_the_windows_part_of_a_life_and_of_a_call_counts() -> None:
    found = cost(LIFE, calls=[call(120, 150)], start=105, end=140)
    assert parts(found) == (20, 10, 5, 0)
    assert found.cpu_seconds == 70


def test_a_killed_replica_ends_where_it_was_last_seen_and_is_marked() -> None:
    killed = replace(LIFE, ended_at=145.0, inferred=True, reason="killed by signal 9")
    found = cost(killed, replace(LIFE, instance=InstanceId("rollout-2")), calls=[call(120, 150)])
    assert (found.num_replicas, found.num_inferred) == (2, 1)
    # The call that the dead one was seen on does not outlive it.
    assert found.busy_s == 25


def test_a_gpu_is_paid_for_while_it_is_held_not_while_it_is_busy() -> None:
    found = cost(replace(LIFE, num_cpus=4.0, num_gpus=2), calls=[call(120, 130)])
    assert (found.cpu_seconds, found.gpu_seconds) == (400, 200)
    assert found.usd == pytest.approx(400 * 36 / 3600 + 200 * 3600 / 3600)


def test_functions_are_told_apart() -> None:
    learner = replace(LIFE, function="learner", instance=InstanceId("learner-1"), started_at=150.0, ready_at=160.0)
    costs = account([LIFE, learner], [], start=0, end=200, price=PRICE)
    assert {name: found.cpu_seconds for name, found in costs.items()} == {"rollout": 200, "learner": 100}


def test_windows_add_up_and_keep_the_most_replicas() -> None:
    total = add_ledgers(
        {"a": StageCost(busy_s=1, num_replicas=3), "b": StageCost(cold_s=2, num_replicas=1)},
        {"a": StageCost(busy_s=5, usd=1, num_replicas=2, num_inferred=1)},
    )
    assert total == {
        "a": StageCost(busy_s=6, usd=1, num_replicas=3, num_inferred=1),
        "b": StageCost(cold_s=2, num_replicas=1),
    }


times = st.floats(0, 1000, allow_nan=False)
maybe = st.none() | times
spans = st.lists(st.tuples(times, times), max_size=6)


@st.composite
def any_lives(draw: st.DrawFn) -> ReplicaLife:
    """Lives whose times may contradict each other, as clocks of different machines do."""
    return replace(
        LIFE,
        instance=InstanceId(f"rollout-{draw(st.integers(1, 3))}"),
        num_cpus=draw(st.sampled_from([0.5, 1.0, 4.0])),
        num_gpus=draw(st.integers(0, 2)),
        started_at=draw(maybe),
        ready_at=draw(maybe),
        draining_at=draw(maybe),
        ended_at=draw(maybe),
    )


@given(life=any_lives(), calls=spans, start=times, length=st.floats(0.1, 500))
def test_the_parts_of_a_life_are_never_negative_and_add_up_to_what_is_held(
    life: ReplicaLife, calls: list[tuple[float, float]], start: float, length: float
) -> None:
    records = [call(first, last, life.instance) for first, last in calls]
    for found in account([life], records, start=start, end=start + length, price=PRICE).values():
        assert all(value >= -1e-9 for value in parts(found))
        assert sum(parts(found)) * life.num_cpus == pytest.approx(found.cpu_seconds)
        assert found.gpu_seconds == pytest.approx(sum(parts(found)) * life.num_gpus)
        assert 0 < sum(parts(found)) <= length + 1e-9


@given(
    lives=st.lists(any_lives(), max_size=3, unique_by=lambda life: life.instance),
    calls=spans,
    cuts=st.lists(times, min_size=2, max_size=5, unique=True).map(sorted),
)
def test_windows_that_tile_add_up_to_the_whole(
    lives: list[ReplicaLife], calls: list[tuple[float, float]], cuts: list[float]
) -> None:
    records = [call(first, last, f"rollout-{number % 3 + 1}") for number, (first, last) in enumerate(calls)]
    whole = account(lives, records, start=cuts[0], end=cuts[-1], price=PRICE)
    total: dict[str, StageCost] = {}
    for start, end in pairwise(cuts):
        total = add_ledgers(total, account(lives, records, start=start, end=end, price=PRICE))
    assert set(total) == set(whole)
    for name, found in whole.items():
        for amount in AMOUNTS:
            assert getattr(total[name], amount) == pytest.approx(getattr(found, amount), abs=1e-6)


def test_the_amounts_are_all_fields_but_the_counts() -> None:
    assert {*AMOUNTS, "num_replicas", "num_inferred"} == set(asdict(StageCost()))
