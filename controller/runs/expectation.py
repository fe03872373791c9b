"""What a run is expected to take and to cost per step, said before anything is started.

Actors start in the first step. Later on they are up when they are needed, since they are held or started in time.

Lengths come from a checkpoint's history, the rows' answers or the most that is allowed; speed from a stored profile or
stated defaults; the other parts of a step from earlier runs of the same model. Each of these is named, for a guess is
only as good as what it is made of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from controller.platforms.stage_routing import state_of
from controller.runs.config.run_config import RunConfig
from controller.runs.ledger import Price
from controller.runs.plan_records import RoundRecord, round_record
from controller.runs.planning import Known, Planned, plan_known
from controller.runs.stage_figures import lives_of, stage_figures
from controller.scheduling.observations import SchedulePolicy
from controller.scheduling.plan import Expected
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A step as it is expected, with the prompts of the first one, and the run by it."""

    policy: SchedulePolicy
    plan: RoundRecord
    """Of the first step, in which actors start."""
    first_step_s: float
    """As ``step_s``, cold starts included."""
    generation_s: float
    """Of a later step's rollout."""
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
    """All of them."""
    run_generation_usd: float
    assumptions: tuple[str, ...]
    """What this is made of, and what of it is only assumed."""


def as_json(expected: Expectation) -> dict[str, Any]:
    """As JSON values."""
    value: dict[str, Any] = _EXPECTATION.dump_python(expected, mode="json")
    return value


_EXPECTATION = TypeAdapter(Expectation)


def expectation(
    known: Known, prompts: Sequence[Prompt], config: RunConfig, *, num_steps: int, price: Price
) -> Expectation:
    """What the first step with these prompts is expected to take. Pure."""
    planned = plan_known(known, prompts, config, seed=config.trainer.seed)
    first = expected_of(planned)
    expected = expected_of(plan_known(warm(known), prompts, config, seed=config.trainer.seed))
    tokens = sum(sum(group.estimate.lengths) for group in planned.observations.groups)
    per_token = known.speed.stage_s if known.speed is not None else {}
    other_s = {name: seconds * tokens for name, seconds in per_token.items()} or None
    others_s = sum((other_s or {}).values())
    step_s, first_step_s = expected.time_s + others_s, first.time_s + others_s
    has_gpus = any(life.num_gpus for life in lives_of(known.functions, Stage.ROLLOUT, known.lives))
    usd = price.usd(0.0, expected.unit_s) if has_gpus else price.usd(expected.unit_s, 0.0)
    return Expectation(
        policy=planned.policy,
        plan=round_record(0, planned),
        first_step_s=first_step_s,
        generation_s=expected.time_s,
        other_s=other_s,
        step_s=step_s,
        generation_replica_s=expected.replica_s,
        generation_unit_s=expected.unit_s,
        generation_usd=usd,
        tokens=tokens,
        num_steps=num_steps,
        run_s=first_step_s + (num_steps - 1) * step_s,
        run_generation_usd=num_steps * usd,
        assumptions=tuple(_assumptions(known, planned, other_s is not None)),
    )


def expected_of(planned: Planned) -> Expected:
    """What a plan of a step expects."""
    if planned.plan.expected is None:
        raise ValueError("a plan that is made of estimates says what it expects")
    return planned.plan.expected


def warm(known: Known) -> Known:
    """The same, with every actor that there may be up already."""
    up = known.resources.max_actors
    rollout = state_of(known.functions, Stage.ROLLOUT)
    functions = [replace(state, num_ready=up) if state is rollout else state for state in known.functions]
    return replace(known, functions=functions)


def _assumptions(known: Known, planned: Planned, knows_others: bool) -> list[str]:
    observations, sources = planned.observations, planned.sources
    past = known.past
    scaled = ", times {:.3g}, as in an earlier run of this model" if past.per_answer_token is not None else ""
    nothing = f"the most that is allowed, {observations.max_tokens} tokens, for nothing is known of them"
    names = {
        "history": "the checkpoint's length history",
        "answer": "the length of their ground-truth answers" + scaled.format(past.per_answer_token),
        "default": nothing if past.mean_tokens is None else "the mean of an earlier run of this model",
    }
    num_prompts = len(observations.groups)
    said = [f"lengths of {count} of {num_prompts} prompts: {names[source]}" for source, count in sources.items()]
    if observations.profile is None:
        said.append("decoding speed: stated defaults, for this model was not measured on this rollout function yet")
    else:
        num = 0 if known.speed is None else len(known.speed.observations)
        said.append(f"decoding speed: a stored profile of this model on this rollout function ({num} observations)")
    lives = lives_of(known.functions, Stage.ROLLOUT, known.lives)
    figures = stage_figures(Stage.ROLLOUT, lives, known.past, known.platform)
    measured = any(life.ready_at is not None for life in lives)
    kind = "measured" if measured else "the platform's usual figure"
    said.append(f"cold start of an actor: {figures.cold_start_s:.3g} s, {kind}")
    if not lives:
        said.append("an actor counts as one unit (GPU, or core), since none has run yet")
    if not knows_others:
        said.append("reward, reference, critic and learner are left out: no earlier run of this model tells their time")
    return said
