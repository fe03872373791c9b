"""Targets and windows of a revision."""

import pytest

from controller.platforms.local.scaling_spec import ScalingSpec


@pytest.mark.parametrize(
    ("concurrency_limit", "target", "utilization", "expected"),
    [
        (1, None, 1.0, 1.0),
        (1, None, 0.7, 0.7),
        (0, None, 0.7, 70.0),
        (10, 4.0, 0.5, 2.0),
        (2, 8.0, 1.0, 2.0),
        (0, 8.0, 1.0, 8.0),
    ],
)
def test_target_concurrency(concurrency_limit: int, target: float | None, utilization: float, expected: float) -> None:
    spec = ScalingSpec(container_concurrency=concurrency_limit, target=target, utilization=utilization)
    assert spec.target_concurrency == expected


@pytest.mark.parametrize(("window_s", "panic_window_s"), [(60, 6), (15, 2), (6, 1), (14, 1)])
def test_panic_window_is_whole_seconds(window_s: float, panic_window_s: float) -> None:
    assert ScalingSpec(window_s=window_s).panic_window_s == panic_window_s


def test_replicas_report_their_load_unless_the_activator_sees_everything() -> None:
    assert ScalingSpec(target_burst_capacity=211).is_scraped
    assert ScalingSpec(target_burst_capacity=0).is_scraped
    assert not ScalingSpec(target_burst_capacity=-1).is_scraped
