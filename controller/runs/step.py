"""One synchronous step, in flow order.

    prompts ─▶ schedule ─▶ prefill ─▶ rollout (N actors) ─▶ reward ────┐
                                                            reference ─┼─▶ advantage ─▶ learner ─▶ policy version k+1
                                                            critic ────┘               critic  ─▶ critic version k+1

The controller moves references, never tensors. What a step is planned by, and what comes of it, it leaves for later
steps and for people, together with its head.
"""

from dataclasses import dataclass

from controller.runs.beside import beside
from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.context import RunContext
from controller.runs.holding import Holding
from controller.runs.manifest import Manifest
from controller.runs.observed import observe_rounds
from controller.runs.plan_records import PlanRecords
from controller.runs.rounds import Rounds, sample_rounds
from controller.runs.scoring import flat_rows, reward_metrics
from controller.runs.step_records import record_step
from controller.runs.turn_metrics import turn_metrics
from controller.runs.updating import Updated, update_models
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose, Stage
from shared.store.records import StepRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What a step made: the next head, and what there is to report and to keep of it."""

    manifest: Manifest
    metrics: dict[str, float]
    records: StepRecords
    """To be stored with the head."""


async def run_step(run: RunContext, head: Manifest, holding: Holding | None = None) -> StepOutcome:
    """Run step ``head.step``: sample with the head's policy, judge, update. ``holding`` is the owner's."""
    began_at = run.platform.now()
    holding = holding or Holding(run)
    plans = PlanRecords(run, head.step, schedule_policy(run.config))
    rounds = await sample_rounds(run, head, plans, holding)
    for stage in (Stage.PREFILL, Stage.REWARD, Stage.REFERENCE):
        await holding.after(stage)
    batch = BatchKey(run=run.run, purpose=Purpose.TRAIN, step=head.step)
    async with beside(run.platform.now, at_once=True) as work:
        observing = work.start("observe", observe_rounds, run, rounds)
        updating = work.start(
            "update",
            update_models,
            run,
            head,
            batch,
            rounds.parts,
            flat_rows=flat_rows(rounds.rewards),
            threads=run.resources.num_threads,
        )
    updated = updating.result()
    for stage in (Stage.CRITIC, Stage.LEARNER):
        await holding.after(stage)
    timings_s = {**rounds.timings_s, **updated.timings_s, "step": run.platform.now() - began_at}
    recorded = await record_step(run, observing.result(), plans, holding, timings_s)
    metrics = updated.metrics | _round_metrics(run, rounds) | recorded.metrics
    metrics |= {f"timing_s/{name}": seconds for name, seconds in timings_s.items()}
    return StepOutcome(manifest=_next_head(head, rounds, updated), metrics=metrics, records=recorded.records)


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
    metrics = dict(reward_metrics(rounds.rewards))
    if run.config.data.filter_overlong_prompts:
        metrics["data/num_filtered"] = float(run.prepared.train.num_filtered)
    if run.config.algorithm.filter_groups.enable:
        metrics["data/num_gen_batches"] = float(rounds.num_rounds)
        metrics["data/num_sampled_groups"] = float(rounds.num_sampled)
        metrics["data/num_leftover_rows"] = float(len(rounds.position.leftover))
    if run.config.rollout.multi_turn.enable:
        metrics |= turn_metrics(rounds.rollouts)
    return metrics
