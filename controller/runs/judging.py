"""Judge one sampled batch by the stages that need nothing but its completions: reward, reference, critic."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.runs.beside import Group, beside
from controller.runs.context import RunContext
from controller.runs.critic import value_batch
from controller.runs.manifest import Manifest
from controller.runs.reference import reference_batch
from controller.runs.scoring import score_batch
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, StageReply
from shared.contracts.policy import BlobRef
from shared.contracts.reward import RewardOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One sampling round with everything that was said about it."""

    part: BatchPart | None
    """The groups to train on; ``None`` where no group is."""
    rewards: tuple[StageReply[RewardOutputs], ...]
    timings_s: Mapping[str, float]
    """Seconds of each stage that was asked: ``reward``, ``ref``, ``values``."""
    surplus: tuple[str, ...] = ()
    """Rows that would be worth training on and were not needed."""


async def judge_batch(
    run: RunContext, head: Manifest, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef
) -> Judged:
    """Scores of all rows, and what the algorithm needs besides."""
    async with beside(run.platform.now, at_once=not run.resources.shared_threads) as stages:
        scoring = stages.start("reward", score_batch, run, batch, row_uids, prompts, num_samples=run.config.rollout.n)
        models = _ask_models(stages, run, head, batch, row_uids, prompts)
    rewards = tuple(scoring.result())
    part = _part(batch, row_uids, prompts, rewards, models)
    return Judged(part=part, rewards=rewards, timings_s=_asked(stages.timings_s, head))


async def judge_useful(
    run: RunContext, head: Manifest, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef, *, num_wanted: int
) -> Judged:
    """Scores of all rows; of those whose rewards differ the first ``num_wanted``, with what the algorithm needs.

    Usefulness is told by raw correctness: a penalty on length would make every group look different.
    """
    began_at = run.platform.now()
    rewards = tuple(await score_batch(run, batch, row_uids, prompts, num_samples=run.config.rollout.n))
    reward_s = {"reward": run.platform.now() - began_at}
    useless = {uid for reply in rewards for uid in (*reply.outputs.flat_rows, *reply.outputs.dropped_rows)}
    useful = [uid for uid in row_uids if uid not in useless]
    chosen, surplus = useful[:num_wanted], tuple(useful[num_wanted:])
    if not chosen:
        return Judged(part=None, rewards=rewards, timings_s=reward_s, surplus=surplus)
    async with beside(run.platform.now, at_once=not run.resources.shared_threads) as stages:
        models = _ask_models(stages, run, head, batch, chosen, prompts)
    part = _part(batch, chosen, prompts, rewards, models)
    return Judged(part=part, rewards=rewards, timings_s=reward_s | _asked(stages.timings_s, head), surplus=surplus)


_TokenValues = asyncio.Task[tuple[BlobRef, ...]]


def _ask_models(
    stages: Group, run: RunContext, head: Manifest, batch: BatchKey, row_uids: Sequence[str], prompts: BlobRef
) -> tuple[_TokenValues, _TokenValues]:
    """What the reference and the critic say of the rows."""
    return (
        stages.start("ref", reference_batch, run, head, batch, row_uids, prompts),
        stages.start("values", value_batch, run, head, batch, row_uids, prompts),
    )


def _part(
    batch: BatchKey,
    row_uids: Sequence[str],
    prompts: BlobRef,
    rewards: Sequence[StageReply[RewardOutputs]],
    models: tuple[_TokenValues, _TokenValues],
) -> BatchPart:
    logprobs, values = models
    return BatchPart(
        round=batch.round,
        prompts=prompts,
        row_uids=tuple(row_uids),
        scores=tuple(reply.outputs.scores for reply in rewards),
        reference_logprobs=logprobs.result(),
        values=values.result(),
    )


def _asked(timings_s: Mapping[str, float], head: Manifest) -> dict[str, float]:
    """Without stages that the algorithm does not have."""
    missing = {name for name, policy in (("ref", head.reference), ("values", head.critic)) if policy is None}
    return {name: seconds for name, seconds in timings_s.items() if name not in missing}
