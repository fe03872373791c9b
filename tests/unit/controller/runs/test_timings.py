"""Where a step's time went."""

import pytest

from controller.runs.stage_client import CallRecord
from controller.runs.timings import step_timings
from shared.contracts.call import CallKey
from shared.contracts.stage import Purpose, Stage


def record(stage: Stage, started_at: float, compute_s: float, *, shard: int = 0, segment: int = 0) -> CallRecord:
    """An answered call of which only the compute matters."""
    return CallRecord(
        key=CallKey(run="r", purpose=Purpose.TRAIN, step=0, stage=stage, shard=shard, segment=segment),
        instance="i",
        sent_at=0.0,
        received_at=0.0,
        started_at=started_at,
        ended_at=started_at + compute_s,
        load_s=0.0,
        compute_s=compute_s,
        replica_started_at=0.0,
        replica_ready_at=0.0,
    )


def test_the_slowest_replica_of_each_stage_is_on_the_critical_path() -> None:
    calls = [record(Stage.ROLLOUT, 1, 2.0), record(Stage.ROLLOUT, 1, 3.0, shard=1), record(Stage.LEARNER, 5, 4.0)]
    assert step_timings(calls, 10.0) == {
        "timing_s/compute/rollout": 3.0,
        "timing_s/compute/learner": 4.0,
        "timing_s/plumbing": 3.0,
    }


def test_the_segments_of_a_replica_follow_each_other() -> None:
    calls = [
        record(Stage.ROLLOUT, 0, 2.0),
        record(Stage.ROLLOUT, 2, 2.5, segment=1),
        record(Stage.ROLLOUT, 0, 3.0, shard=1),
    ]
    timings = step_timings(calls, 5.0)
    assert timings["timing_s/compute/rollout"] == pytest.approx(4.5)
    assert timings["timing_s/plumbing"] == pytest.approx(0.5)


def test_stages_that_compute_beside_each_other_take_their_time_once() -> None:
    calls = [record(Stage.LEARNER, 1, 4.0), record(Stage.CRITIC, 2, 1.0), record(Stage.REFERENCE, 4.5, 1.5)]
    assert step_timings(calls, 7.0)["timing_s/plumbing"] == pytest.approx(2.0)


def test_clocks_that_disagree_never_make_it_negative() -> None:
    assert step_timings([record(Stage.LEARNER, 0, 9.0)], 5.0)["timing_s/plumbing"] == 0.0
