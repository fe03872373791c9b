"""What it costs to have a replica of a stage, and to give it back: measured where it was, else as the platform says."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.platforms.base import FunctionState, PlatformFigures, ReplicaLife
from controller.platforms.stage_routing import state_of
from controller.runs.past_steps import PastSteps
from shared.contracts.stage import Stage

NUM_LIVES = 16
"""Lives that count, the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Of one stage's replicas. Seconds are medians: one that waited for a node says nothing of the next."""

    cold_start_s: float
    """From asking for a replica until it takes calls."""
    drain_s: float
    """From telling it to end until what it holds is free."""
    load_s: float
    """Fetch and load of weights by a new replica; 0 where it has none, or before anything was measured."""
    reload_s: float
    """What a replica that was held loads for its next use all the same: the next version of the policy."""
    units: float
    """GPUs that a replica holds, or CPUs where it has none; 1 before there was any replica."""


def stage_figures(
    stage: Stage, lives: Sequence[ReplicaLife], past: PastSteps, platform: PlatformFigures
) -> StageFigures:
    """Figures of a stage from the lives of its function's replicas, and from how long some took to load. Pure."""
    own = sorted(lives, key=lambda life: life.scheduled_at)[-NUM_LIVES:]
    starts = [life.ready_at - life.scheduled_at for life in own if life.ready_at is not None and not life.inferred]
    drains = [
        life.ended_at - life.draining_at
        for life in own
        if life.ended_at is not None and life.draining_at is not None and not life.inferred
    ]
    return StageFigures(
        cold_start_s=_median(starts, platform.cold_start_s),
        drain_s=_median(drains, platform.drain_s),
        load_s=_median(past.loads_s.get(stage, ()), 0.0),
        reload_s=_median(past.reloads_s.get(stage, ()), 0.0),
        units=float(own[-1].num_gpus or own[-1].num_cpus) if own else 1.0,
    )


def lives_of(functions: Iterable[FunctionState], stage: Stage, lives: Iterable[ReplicaLife]) -> tuple[ReplicaLife, ...]:
    """Lives of the replicas of the stage's own function. Another one may serve it too, beside its own stage. Pure."""
    state = state_of(functions, stage)
    return () if state is None else tuple(life for life in lives if life.function == state.name)


def _median(values: Sequence[float], otherwise: float) -> float:
    return max(0.0, statistics.median(values)) if values else otherwise
