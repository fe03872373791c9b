"""Scoring one batch."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.scoring import flat_rows, reward_metrics, score_batch
from controller.scheduling import sharding
from shared.contracts.call import CallKey, ServedBy, StageReply, Timings
from shared.contracts.policy import BlobRef
from shared.contracts.reward import PartSummary, RewardOutputs, RuleReward, Scores
from shared.contracts.stage import Purpose, Stage
from tests.fakes.sampled import BATCH, ROWS, sample
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, make_world


def reply(num_scored: int, mean: float, **outputs: Any) -> StageReply[RewardOutputs]:
    return StageReply[RewardOutputs](
        key=CallKey(run=RUN, purpose=Purpose.TRAIN, step=0, stage=Stage.REWARD),
        outputs=RewardOutputs(
            scores=BlobRef(id="r/0/s", num_bytes=0, sha256="a" * 64), num_scored=num_scored, mean_reward=mean, **outputs
        ),
        served=ServedBy(instance="i", revision="r", started_at=0, ready_at=0),
        timings=Timings(started_at=0, ended_at=0),
    )


@in_virtual_time
async def test_rows_are_scored_in_shards_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "COMPLETIONS_PER_CALL", 6)
    world = await make_world(tmp_path, reward__timeout_s=7.0, reward__num_attempts=2, reward__on_failure="drop_group")
    run = await sample(world)
    prompts = await run.blobs.put(RUN, 0, "prompts", b"{}")
    began_at = world.platform.now()
    replies = await score_batch(run, BATCH, ROWS, prompts, num_samples=2)
    calls = world.stages.seen(Stage.REWARD)
    assert [call.key.shard for call in calls] == [0, 1]
    assert [call.inputs.row_uids for call in calls] == [ROWS[:3], ROWS[3:]]
    assert world.platform.now() - began_at < 4, "a cold start and two scorings beside each other"
    for call in calls:
        assert call.policy is None
        assert call.inputs.reward == RuleReward(name="exact_match")
        assert (call.inputs.timeout_s, call.inputs.num_attempts, call.inputs.on_failure) == (7.0, 2, "drop_group")
        assert call.inputs.num_samples == 2
    scores = [Scores.model_validate_json(await world.blobs.get(reply.outputs.scores)) for reply in replies]
    assert [score.row_uid for part in scores for score in part.scores] == [row for row in ROWS for _ in range(2)]


def part(name: str, num_scored: int, num_none: int, mean: float) -> PartSummary:
    return PartSummary(name=name, num_scored=num_scored, num_none=num_none, mean=mean)


def test_each_part_is_averaged_over_the_completions_that_it_applies_to() -> None:
    shards = [
        reply(8, 0.5, parts=(part("right", 8, 0, 0.5), part("style", 2, 6, 1.0)), num_dropped_groups=2),
        reply(4, 0.5, parts=(part("right", 4, 0, 1.0),), num_dropped_groups=1, num_failed_groups=1),
    ]
    assert reward_metrics(shards) == {
        "reward/num_dropped_groups": 3.0,
        "reward/num_failed_groups": 1.0,
        "rewards/right/mean": pytest.approx(8 / 12),
        "rewards/right/num_none": 0.0,
        "rewards/style/mean": 1.0,
        "rewards/style/num_none": 10.0,
    }
    assert reward_metrics([reply(0, 0.0)]) == {"reward/num_dropped_groups": 0.0, "reward/num_failed_groups": 0.0}


def test_flat_rows_of_all_shards() -> None:
    assert flat_rows([reply(4, 1.0, flat_rows=("a",)), reply(4, 0.5), reply(2, 0.0, flat_rows=("d", "e"))]) == (
        *("a", "d", "e"),
    )
