"""One synchronous step, in flow order.

    prompts ─▶ schedule ─▶ rollout (N actors) ─▶ reward ────┐
                                                 reference ─┼─▶ advantage ─▶ learner ─▶ policy version k+1
                                                 critic ────┘               critic  ─▶ critic version k+1

Prefill has its place before rollout. The controller moves references, never tensors.
"""

from dataclasses import dataclass

from controller.runs.context import RunContext
from controller.runs.manifest import Manifest
from controller.runs.rounds import Rounds, sample_rounds
from controller.runs.scoring import flat_rows, reward_metrics
from controller.runs.turn_metrics import turn_metrics
from controller.runs.updating import Updated, update_models
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step made: the next head, and what there is to report about it."""

    manifest: Manifest
    metrics: dict[str, float]


async def run_step(run: RunContext, head: Manifest) -> StepOutcome:
    """Run step ``head.step``: sample with the head's policy, judge, update."""
    began_at = run.platform.now()
    rounds = await sample_rounds(run, head)
    batch = BatchKey(run=run.run, purpose=Purpose.TRAIN, step=head.step)
    updated = await update_models(
        run, head, batch, rounds.parts, flat_rows=flat_rows(rounds.rewards), threads=rounds.plan.learner_threads
    )
    timings_s = {**rounds.timings_s, **updated.timings_s, "step": run.platform.now() - began_at}
    metrics = updated.metrics | _round_metrics(run, rounds)
    metrics |= {f"timing_s/{name}": seconds for name, seconds in timings_s.items()}
    return StepOutcome(manifest=_next_head(head, rounds, updated), metrics=metrics)


def _next_head(head: Manifest, rounds: Rounds, updated: Updated) -> Manifest:
    return head.model_copy(
        update={
            "step": head.step + 1,
            "data_cursor": rounds.position.cursor,
            "leftover_rows": rounds.position.leftover,
            "policy": updated.policy,
            "state": updated.state,
            "packing_plan": updated.packing_plan,
            "previous_policy": head.policy,
            "critic": updated.critic,
            "critic_state": updated.critic_state,
            "kl_coef": updated.kl_coef if updated.kl_coef is not None else head.kl_coef,
        }
    )


def _round_metrics(run: RunContext, rounds: Rounds) -> dict[str, float]:
    metrics = {
        **reward_metrics(rounds.rewards),
        "schedule/num_actors": float(rounds.plan.num_actors),
    }
    if run.config.data.filter_overlong_prompts:
        metrics["data/num_filtered"] = float(run.prepared.train.num_filtered)
    if run.config.algorithm.filter_groups.enable:
        metrics["data/num_gen_batches"] = float(rounds.num_rounds)
        metrics["data/num_sampled_groups"] = float(rounds.num_sampled)
        metrics["data/num_leftover_rows"] = float(len(rounds.position.leftover))
    if run.config.rollout.multi_turn.enable:
        metrics |= turn_metrics(rounds.rollouts)
    return metrics
