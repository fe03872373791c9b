"""Which function a stage's call goes to, where more than one serves the stage. Pure.

A stage has a function of its own as a rule. Where the learner's function serves prefill and rollout too, one actor can
sample beside the learner, with the weights in memory (RLHFless, arXiv 2602.22718, section on locality-aware placement),
and the other actors are replicas of rollout's own function.
"""

from collections.abc import Collection, Iterable, Mapping

from controller.platforms.base import FunctionState
from shared.contracts.stage import Stage


def function_of(stages: Mapping[str, Collection[Stage]], stage: Stage, *, beside: Stage | None = None) -> str | None:
    """The name of the function that serves the stage, or ``None``. ``stages`` by function.

    With ``beside``, one that serves this stage in the same process, if any does. Else the one that serves least
    besides; of equal ones the first by name.
    """
    serving = sorted((len(served), name) for name, served in stages.items() if stage in served)
    together = [name for _, name in serving if beside is not None and beside in stages[name]]
    if together:
        return together[0]
    return serving[0][1] if serving else None


def state_of(functions: Iterable[FunctionState], stage: Stage) -> FunctionState | None:
    """The stage's own function among these, as it is now."""
    by_name = {state.name: state for state in functions}
    name = function_of({name: state.stages for name, state in by_name.items()}, stage)
    return None if name is None else by_name[name]
