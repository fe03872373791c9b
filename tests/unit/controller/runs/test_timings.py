"""Where a step's time went."""

import pytest

from controller.runs.stage_client import CallRecord
from controller.runs.timings import step_timings
from shared.contracts.call import CallKey
from shared.contracts.stage import Purpose, Stage


def record(stage: Stage, compute_s: float, *, shard: int = 0, segment: int = 0) -> CallRecord:
    """An answered call of which only the compute matters."""
    return CallRecord(
        key=CallKey(run="r", purpose=Purpose.TRAIN, step=0, stage=stage, shard=shard, segment=segment),
        instance="i",
        sent_at=0.0,
        received_at=0.0,
        started_at=0.0,
        ended_at=0.0,
        load_s=0.0,
        compute_s=compute_s,
        replica_started_at=0.0,
        replica_ready_at=0.0,
    )


def test_the_slowest_replica_of_each_stage_is_on_the_critical_path() -> None:
    calls = [record(Stage.ROLLOUT, 2.0), record(Stage.ROLLOUT, 3.0, shard=1), record(Stage.LEARNER, 4.0)]
    assert step_timings(calls, 10.0) == {
        "timing_s/compute/rollout": 3.0,
        "timing_s/compute/learner": 4.0,
        "timing_s/plumbing": 3.0,
    }


def test_the_segments_of_a_replica_follow_each_other() -> None:
    calls = [record(Stage.ROLLOUT, 2.0), record(Stage.ROLLOUT, 2.5, segment=1), record(Stage.ROLLOUT, 3.0, shard=1)]
    assert step_timings(calls, 5.0)["timing_s/compute/rollout"] == pytest.approx(4.5)
