"""Evaluate a policy version on the held-out rows. It has keys, randomness and a ledger line of its own."""

from dataclasses import dataclass

from controller.runs.config.to_wire import eval_sampling
from controller.runs.context import RunContext
from controller.runs.manifest import Manifest
from controller.runs.sampling import publish_prompts, sample_batch
from controller.runs.scoring import mean_reward, score_batch
from controller.scheduling.plan import plan_step
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Result of one evaluation."""

    accuracy: float
    """Mean reward over all samples of all held-out rows."""
    num_rows: int
    num_samples: int
    """Samples per row."""


async def evaluate(run: RunContext, head: Manifest) -> Evaluation:
    """Sample and score the held-out rows with the head's policy, part by part."""
    rows = run.prepared.heldout
    size = run.config.data.val_batch_size or len(rows)
    num_samples = run.config.rollout.val_kwargs.n
    sampling = eval_sampling(run.config, run.prepared.eos_token_ids)
    total = 0.0
    for part, start in enumerate(range(0, len(rows), size)):
        prompts = rows[start : start + size]
        row_uids = tuple(prompt.row_uid for prompt in prompts)
        batch = BatchKey(run=run.run, purpose=Purpose.EVAL, step=head.step, round=part)
        plan = plan_step(
            row_uids, group_size=num_samples, resources=run.resources, num_actors=run.config.rollout.num_actors
        )
        prompts_ref = await publish_prompts(run, batch, prompts)
        await sample_batch(run, batch, plan, prompts_ref, head.policy, sampling)
        rewards = await score_batch(run, batch, row_uids, prompts_ref, num_samples=num_samples)
        total += mean_reward(rewards) * len(prompts)
        await run.store.work.sweep(batch)
    return Evaluation(accuracy=total / len(rows), num_rows=len(rows), num_samples=num_samples)
