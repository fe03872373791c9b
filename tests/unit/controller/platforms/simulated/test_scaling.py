"""The rule that decides how many replicas there are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.platforms.simulated.function_spec import FunctionSpec
from controller.platforms.simulated.scaling import leaves_at, wanted_replicas
from shared.contracts.stage import Stage


def spec(concurrency: int = 1, lowest: int = 0, highest: int = 0) -> FunctionSpec:
    return FunctionSpec(
        name="rollout",
        stages=(Stage.ROLLOUT,),
        container_concurrency=concurrency,
        min_scale=lowest,
        max_scale=highest,
        window_s=15,
    )


@pytest.mark.parametrize(
    ("function", "num_requests", "num_held", "expected"),
    [
        (spec(), 0, 0, 0),
        (spec(), 3, 0, 3),
        (spec(concurrency=4), 5, 0, 2),
        (spec(concurrency=4), 4, 0, 1),
        (spec(), 1, 5, 5),
        (spec(), 9, 0, 9),
        (spec(highest=4), 9, 0, 4),
        (spec(highest=4), 0, 9, 4),
        (spec(lowest=2), 0, 0, 2),
    ],
)
def test_wanted_replicas(function: FunctionSpec, num_requests: int, num_held: int, expected: int) -> None:
    assert wanted_replicas(function, num_requests=num_requests, num_held=num_held) == expected


@given(
    concurrency=st.integers(1, 100),
    lowest=st.integers(0, 5),
    spread=st.integers(0, 50),
    num_requests=st.integers(0, 500),
    num_held=st.integers(0, 50),
)
def test_replicas_suffice_unless_the_maximum_forbids(
    concurrency: int, lowest: int, spread: int, num_requests: int, num_held: int
) -> None:
    function = spec(concurrency, lowest, lowest + spread)
    wanted = wanted_replicas(function, num_requests=num_requests, num_held=num_held)
    assert wanted >= lowest
    if function.max_scale:
        assert wanted <= function.max_scale
    if wanted != function.max_scale:
        assert wanted * concurrency >= num_requests
        assert wanted >= num_held


def test_a_replica_leaves_after_the_window() -> None:
    assert leaves_at(spec(), idle_since=100.0) == 115.0
