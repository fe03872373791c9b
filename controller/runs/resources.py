"""What the platform grants a run. Pure."""

from collections.abc import Sequence

from controller.platforms.base import FunctionState, PlatformFigures
from controller.platforms.stage_routing import state_of
from controller.scheduling.observations import Resources
from shared.contracts.stage import Stage

MAX_ACTORS_UNBOUNDED = 64
"""Actors at most where the manifest sets no maximum."""


def resources_of(functions: Sequence[FunctionState], platform: PlatformFigures, *, num_threads: int) -> Resources:
    """Threads and actors by the functions' manifests; ``num_threads``: of the machine, or of one replica."""
    rollout = state_of(functions, Stage.ROLLOUT)
    return Resources(
        num_threads=num_threads,
        max_actors=rollout.max_scale if rollout and rollout.max_scale else MAX_ACTORS_UNBOUNDED,
        shared_threads=platform.shared_threads,
    )
