"""Raised minima: how much, until when, and how they are written down."""

import pytest

from controller.platforms.knative.holding import (
    CLOCK_SKEW_S,
    HELD_BY,
    HOLD_UNTIL,
    MIN_SCALE_BEFORE,
    Hold,
    Wanted,
    is_held,
    is_overdue,
    lowered,
    raised,
    settle_s,
    wanted_minimum,
)
from tests.fakes.kubernetes.merge_patch import merged

MIN_SCALE = "autoscaling.knative.dev/min-scale"
NOON = 1_796_040_000.0


def hold(num_replicas: int, until: float) -> Hold:
    return Hold(num_replicas=num_replicas, until=until)


def minimum(*holds: Hold, sent_at: tuple[float, ...] = (), raised: int = 0, now: float = 100.0) -> Wanted:
    return wanted_minimum(holds, sent_at, now=now, settled_after_s=10.0, raised=raised)


def test_the_largest_hold_counts_until_the_first_ends() -> None:
    assert minimum(hold(4, 130.0), hold(2, 160.0)) == Wanted(num_replicas=4, until=160.0, look_at=130.0)
    assert minimum(hold(4, 130.0), hold(2, 160.0), now=140.0) == Wanted(num_replicas=2, until=160.0, look_at=160.0)
    assert minimum(hold(4, 130.0), now=130.0).num_replicas == 0
    assert minimum(hold(0, 130.0)) == Wanted(num_replicas=0, until=0.0, look_at=None)


def test_requests_that_were_not_seen_yet_keep_what_is_raised() -> None:
    assert minimum(sent_at=(95.0, 96.0), raised=4) == Wanted(num_replicas=2, until=106.0, look_at=106.0)
    assert minimum(sent_at=(60.0, 96.0), raised=4).num_replicas == 2, "the average is wrong for all of them"
    assert minimum(sent_at=(80.0, 90.0), raised=4).num_replicas == 0
    assert minimum(sent_at=(99.0,) * 9, raised=4).num_replicas == 4, "nothing is raised for requests"
    assert minimum(sent_at=(99.0,)).num_replicas == 0


def test_the_autoscaler_has_seen_all_after_its_window() -> None:
    assert settle_s(15.0) == 19.0


def revision(**annotations: str) -> dict:
    return {"metadata": {"name": "rollout-00001", "annotations": annotations}}


@pytest.mark.parametrize("own", [{}, {MIN_SCALE: "0"}, {MIN_SCALE: "1", "other": "kept"}])
def test_lowering_brings_back_what_was_before(own: dict[str, str]) -> None:
    before = revision(**own)
    up = merged(before, raised(before, minimum(hold(3, NOON)), "controller-0"))
    annotations = up["metadata"]["annotations"]
    assert annotations[MIN_SCALE] == "3"
    assert annotations[HELD_BY] == "controller-0"
    assert annotations[HOLD_UNTIL] == "2026-11-30T12:00:00Z"
    higher = merged(up, raised(up, minimum(hold(5, NOON)), "controller-0"))
    assert higher["metadata"]["annotations"][MIN_SCALE] == "5"
    down = merged(higher, lowered(higher))
    assert down == before or down["metadata"]["annotations"] == own
    assert lowered(down) is None


def test_a_minimum_of_the_manifest_is_not_undercut() -> None:
    before = revision(**{MIN_SCALE: "2"})
    up = merged(before, raised(before, minimum(hold(1, NOON)), "controller-0"))
    assert up["metadata"]["annotations"][MIN_SCALE] == "2"
    assert up["metadata"]["annotations"][MIN_SCALE_BEFORE] == "2"


def test_a_minimum_is_overdue_after_its_time_or_without_one_that_can_be_read() -> None:
    held = revision(**{HOLD_UNTIL: "2026-11-30T12:00:00Z"})
    assert not is_overdue(held, NOON + CLOCK_SKEW_S)
    assert is_overdue(held, NOON + CLOCK_SKEW_S + 1)
    assert is_overdue(revision(**{HOLD_UNTIL: "tomorrow"}), NOON)
    assert is_overdue(revision(**{HOLD_UNTIL: "2026-11-30T12:00:00"}), NOON), "of which time zone?"
    assert not is_overdue(revision(), NOON)
    assert is_held(held)
    assert not is_held(revision(**{MIN_SCALE: "4"}))
