"""What a run is expected to take and to cost per step, said before anything is started.

Lengths come from a checkpoint's history, the rows' answers or the most that is allowed; speed from a stored profile or
stated defaults; the other parts of a step from earlier runs of the same model. Each of these is named, for a guess is
only as good as what it is made of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.runs.config.run_config import RunConfig
from controller.runs.ledger import Price
from controller.runs.plan_records import RoundRecord, round_record
from controller.runs.planning import Known, Planned, plan_known
from controller.runs.stage_figures import stage_figures
from controller.scheduling.observations import SchedulePolicy
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One step as it is expected, the first one, and the run by it."""

    policy: SchedulePolicy
    plan: RoundRecord
    generation_s: float
    """Of a step's rollout, cold starts included."""
    other_s: Mapping[str, float] | None
    """Of the other parts of a step, by verl's names; ``None`` where no earlier run of the model tells."""
    step_s: float
    """Generation and, as far as they are known, the other parts, one after another."""
    generation_replica_s: float
    """Held seconds of all actors together."""
    generation_unit_s: float
    """GPU-seconds of rollout; core-seconds without GPUs."""
    generation_usd: float
    tokens: float
    """Completion tokens of a step."""
    num_steps: int
    """Steps that the run has to go."""
    run_s: float
    """All of them, at this step's time."""
    run_generation_usd: float
    assumptions: tuple[str, ...]
    """What this is made of, and what of it is only assumed."""


def expectation(
    known: Known, prompts: Sequence[Prompt], config: RunConfig, *, num_steps: int, price: Price
) -> Expectation:
    """What the first step with these prompts is expected to take. Pure."""
    planned = plan_known(known, prompts, config, seed=config.trainer.seed)
    expected = planned.plan.expected
    if expected is None:
        raise ValueError("a plan of a step says what it expects")
    tokens = sum(sum(group.estimate.lengths) for group in planned.observations.groups)
    per_token = known.speed.stage_s if known.speed is not None else {}
    other_s = {name: seconds * tokens for name, seconds in per_token.items()} or None
    step_s = expected.time_s + sum((other_s or {}).values())
    has_gpus = any(life.num_gpus for life in known.lives if Stage.ROLLOUT in life.stages)
    usd = price.usd(0.0, expected.unit_s) if has_gpus else price.usd(expected.unit_s, 0.0)
    return Expectation(
        policy=planned.policy,
        plan=round_record(0, planned),
        generation_s=expected.time_s,
        other_s=other_s,
        step_s=step_s,
        generation_replica_s=expected.replica_s,
        generation_unit_s=expected.unit_s,
        generation_usd=usd,
        tokens=tokens,
        num_steps=num_steps,
        run_s=num_steps * step_s,
        run_generation_usd=num_steps * usd,
        assumptions=tuple(_assumptions(known, planned, other_s is not None)),
    )


def _assumptions(known: Known, planned: Planned, knows_others: bool) -> list[str]:
    observations, sources = planned.observations, planned.sources
    names = {
        "history": "the checkpoint's length history",
        "answer": "the length of their ground-truth answers",
        "default": f"the most that is allowed, {observations.max_tokens} tokens, for nothing is known of them",
    }
    num_prompts = len(observations.groups)
    said = [f"lengths of {count} of {num_prompts} prompts: {names[source]}" for source, count in sources.items()]
    if observations.profile is None:
        said.append("decoding speed: stated defaults, for this model was not measured on this rollout function yet")
    else:
        num = 0 if known.speed is None else len(known.speed.observations)
        said.append(f"decoding speed: a stored profile of this model on this rollout function ({num} observations)")
    figures = stage_figures(Stage.ROLLOUT, known.lives, (), known.platform)
    measured = any(life.ready_at is not None for life in known.lives if Stage.ROLLOUT in life.stages)
    kind = "measured" if measured else "the platform's usual figure"
    said.append(f"cold start of an actor: {figures.cold_start_s:.3g} s, {kind}")
    if observations.platform.units_per_actor == 1.0 and not any(Stage.ROLLOUT in life.stages for life in known.lives):
        said.append("an actor counts as one unit (GPU, or core), since none has run yet")
    if not knows_others:
        said.append("reward, reference, critic and learner are left out: no earlier run of this model tells their time")
    return said
