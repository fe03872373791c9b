"""What the latest steps of a run took, read from its history: what the next one is planned by.

It is read anew for each step, so whoever owns the run plans by the same past.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.runs.context import RunContext
from shared.contracts.stage import Stage

NUM_LINES = 16
"""Lines of history that are read: steps, with the evaluations and checkpoints between them."""
NUM_STEPS = 8
"""Steps that count, the latest: a policy changes, and what a step takes with it."""

MEAN_TOKENS = "schedule/lengths/mean"
"""Tokens of a completion, in the mean."""
PER_ANSWER_TOKEN = "schedule/lengths/per_answer_token"
"""Tokens of a completion for each token of its row's ground-truth answer."""


def gap_metric(stage: Stage) -> str:
    """Seconds for which a stage had nothing to do before its first call of a step, since the step before."""
    return f"schedule/holding/{stage}/gap_s"


def load_metric(stage: Stage) -> str:
    """Seconds that a new replica of the stage took to load weights."""
    return f"schedule/holding/{stage}/load_s"


def reload_metric(stage: Stage) -> str:
    """Seconds that a replica that was there took to load what was new to it, such as the next version."""
    return f"schedule/holding/{stage}/reload_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSteps:
    """Measurements of the latest steps, the newest last in each."""

    timings_s: tuple[Mapping[str, float], ...] = ()
    """Of each step, by verl's names: ``gen``, ``reward``, ``update_actor``, ..., ``step``."""
    gaps_s: Mapping[Stage, tuple[float, ...]] = field(default_factory=dict)
    loads_s: Mapping[Stage, tuple[float, ...]] = field(default_factory=dict)
    """By replicas that were new."""
    reloads_s: Mapping[Stage, tuple[float, ...]] = field(default_factory=dict)
    """By replicas that were there."""
    mean_tokens: float | None = None
    """Of the latest step that says so."""
    per_answer_token: float | None = None


async def read_past(run: RunContext) -> PastSteps:
    """The latest steps of the run."""
    return past_steps(await run.store.runs.history(run.run, last=NUM_LINES))


def past_steps(history: Iterable[Mapping[str, Any]]) -> PastSteps:
    """The latest steps of a history."""
    metrics = [line["metrics"] for line in history if line["kind"] == "step"][-NUM_STEPS:]
    return PastSteps(
        timings_s=tuple(
            {name.removeprefix("timing_s/"): value for name, value in step.items() if name.startswith("timing_s/")}
            for step in metrics
        ),
        gaps_s=_by_stage(metrics, gap_metric),
        loads_s=_by_stage(metrics, load_metric),
        reloads_s=_by_stage(metrics, reload_metric),
        mean_tokens=_latest(metrics, MEAN_TOKENS),
        per_answer_token=_latest(metrics, PER_ANSWER_TOKEN),
    )


def _by_stage(metrics: Sequence[Mapping[str, Any]], name: Callable[[Stage], str]) -> dict[Stage, tuple[float, ...]]:
    found = {stage: tuple(float(step[name(stage)]) for step in metrics if name(stage) in step) for stage in Stage}
    return {stage: values for stage, values in found.items() if values}


def _latest(metrics: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return next((float(step[name]) for step in reversed(metrics) if name in step), None)
