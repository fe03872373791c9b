"""Evaluate a policy version on the held-out rows. It has keys, randomness and a ledger line of its own, and nothing of
what it measures reaches what plans the training."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.runs.config.to_wire import eval_sampling
from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken
from controller.runs.eval_metrics import EvaluatedRow, Sampled, evaluation_metrics
from controller.runs.holding import START_HOLD_S
from controller.runs.manifest import Manifest
from controller.runs.sampling import publish_prompts, sample_batch
from controller.runs.scoring import score_batch
from controller.scheduling.plan import plan_evenly
from shared.contracts.call import BatchKey, StageReply
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RewardOutputs, Scores
from shared.contracts.stage import Purpose, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of one evaluation."""

    accuracy: float
    """Mean reward over all samples of all scored rows; 0 where every row was dropped."""
    num_rows: int
    """Held-out rows, each sampled once per sample number."""
    num_dropped_rows: int
    """Rows of these that have no reward, since it failed (``reward.on_failure``)."""
    num_samples: int
    """Samples per row."""
    metrics: dict[str, float]
    """By verl's names: see ``eval_metrics``; and how long it took."""


async def evaluate(run: RunContext, head: Manifest) -> Evaluation:
    """Sample and score the held-out rows with the head's policy, part by part."""
    began_at = run.platform.now()
    rows = run.prepared.heldout
    size = run.config.data.val_batch_size or len(rows)
    evaluated: list[EvaluatedRow] = []
    for part, start in enumerate(range(0, len(rows), size)):
        batch = BatchKey(run=run.run, purpose=Purpose.EVAL, step=head.step, round=part)
        evaluated += await _evaluate_part(run, head, batch, rows[start : start + size])
    num_samples = run.config.rollout.val_kwargs.n
    metrics = evaluation_metrics(evaluated, success_reward=run.config.trainer.val_success_reward)
    return Evaluation(
        accuracy=metrics.get(f"val-core/reward/mean@{num_samples}", 0.0),
        num_rows=len(rows),
        num_dropped_rows=len(rows) - len(evaluated),
        num_samples=num_samples,
        metrics=metrics | {"timing_s/testing": run.platform.now() - began_at},
    )


async def _evaluate_part(
    run: RunContext, head: Manifest, batch: BatchKey, prompts: Sequence[Prompt]
) -> list[EvaluatedRow]:
    """The rows that have a reward, in the order of the prompts."""
    num_samples = run.config.rollout.val_kwargs.n
    row_uids = tuple(prompt.row_uid for prompt in prompts)
    plan = plan_evenly(
        row_uids, group_size=num_samples, resources=run.resources, num_actors=run.config.rollout.num_actors
    )
    # All at once: by the calls alone they would start one after another.
    num_replicas = plan.num_actors - plan.num_beside_learner
    await run.platform.scale(Stage.ROLLOUT, num_replicas, hold_until=run.platform.now() + START_HOLD_S)
    prompts_ref = await publish_prompts(run, batch, prompts)
    sampling = eval_sampling(run.config, run.prepared.eos_token_ids)
    await sample_batch(run, batch, plan, prompts_ref, head.policy, sampling)
    replies = await score_batch(run, batch, row_uids, prompts_ref, num_samples=num_samples)
    sampled = await _read_scores(run, replies, row_uids, num_samples)
    await run.store.work.sweep(batch)
    return [
        EvaluatedRow(data_source=prompt.data_source, samples=sampled[prompt.row_uid])
        for prompt in prompts
        if prompt.row_uid in sampled
    ]


async def _read_scores(
    run: RunContext, replies: Sequence[StageReply[RewardOutputs]], row_uids: Sequence[str], num_samples: int
) -> dict[str, tuple[Sampled, ...]]:
    """Samples by row, without rows that were dropped. Raises ``ContractBroken`` unless each is there exactly once."""
    found: dict[str, dict[int, Sampled]] = {}
    dropped: set[str] = set()
    num_scores = 0
    for reply in replies:
        scores = Scores.model_validate_json(await run.blobs.get(reply.outputs.scores))
        dropped.update(scores.dropped_rows)
        num_scores += len(scores.scores)
        for score in scores.scores:
            sample = Sampled(reward=score.reward, answer=score.answer)
            found.setdefault(score.row_uid, {})[score.sample] = sample
    expected = set(row_uids) - dropped
    whole = all(samples.keys() == set(range(num_samples)) for samples in found.values())
    if found.keys() != expected or not whole or num_scores != len(expected) * num_samples:
        raise ContractBroken(
            f"reward gave {num_scores} scores of {len(found)} rows where {num_samples} of each of {len(expected)} rows "
            "were asked for: swap its image"
        )
    return {row: tuple(samples[number] for number in range(num_samples)) for row, samples in found.items()}
