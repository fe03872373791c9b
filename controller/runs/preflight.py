"""Before a run: is each of its functions there, does it start, and do all of them fit together?

What the platform knows already is read first; then every function is asked for what it is, which starts it from zero
where it has to, within a budget for its cold start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import product

from controller.platforms.base import FunctionState, FunctionUnreachable, Platform, PlatformReply
from controller.platforms.stage_routing import function_of, state_of
from controller.runs.errors import RunFailed, StageUnavailable
from controller.runs.function_info import INFO_PATH, Announced, FunctionUnfit, read_announcement, tokenizer_disagreement
from controller.runs.stage_client import PLATFORM_STATUSES
from controller.runs.stage_watch import watch_stage
from shared.contracts.stage import Stage
from shared.service.ending import end_task
from shared.service.together import together

COLD_START_BUDGET_S = 1800.0
"""From the first ping to an answer: image pull, a node that has to come, and the process. As ``progress-deadline``."""
PING_TIMEOUT_S = 120.0
"""Of one ping. A platform that cuts it is asked again, within the budget."""
PAUSE_S = 1.0

Notify = Callable[[str], Awaitable[None]]


class PreflightFailed(RunFailed):
    """The run cannot begin with the functions as they are."""


async def preflight(
    platform: Platform,
    stages: Collection[Stage],
    *,
    token: str,
    notify: Notify,
    tokenizer: str | None = None,
    budget_s: float = COLD_START_BUDGET_S,
) -> Mapping[str, Announced]:
    """What each function of these stages announces, by its name. Raises ``PreflightFailed``.

    ``tokenizer`` is the hash of the run's own.
    """
    functions = await _functions_of(platform, stages)
    try:
        announced = await together(
            ping(platform, function, token=token, notify=notify, budget_s=budget_s) for function in functions.values()
        )
    except FunctionUnfit as error:
        raise PreflightFailed(str(error)) from error
    if disagreement := tokenizer_disagreement(announced, own=tokenizer):
        raise PreflightFailed(disagreement)
    return {each.function.name: each for each in announced}


async def ping(
    platform: Platform, function: FunctionState, *, token: str, notify: Notify, budget_s: float = COLD_START_BUDGET_S
) -> Announced:
    """Ask one function what it is. Raises ``PreflightFailed`` without an answer, ``FunctionUnfit`` for a wrong one."""
    stage, beside = way_to(await platform.functions(), function)
    asking = asyncio.create_task(_ask(platform, stage, beside, token, platform.now() + budget_s))
    watching = asyncio.create_task(watch_stage(platform, stage, notify))
    try:
        await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            watching.result()
        return read_announcement(function, await asking)
    except (FunctionUnreachable, StageUnavailable) as error:
        raise PreflightFailed(f"{function.name} did not start: {error}") from error
    finally:
        await end_task(watching)
        await end_task(asking)


def way_to(functions: Iterable[FunctionState], function: FunctionState) -> tuple[Stage, Stage | None]:
    """The stage by which the platform is asked for this function, and the one beside it where others serve it too.

    Raises ``PreflightFailed`` where every call would go to other functions.
    """
    served = {state.name: state.stages for state in functions}
    for stage, beside in product(function.stages, (None, *function.stages)):
        if function_of(served, stage, beside=beside) == function.name:
            return stage, beside
    raise PreflightFailed(f"no call goes to {function.name}: other functions serve its stages")


async def _ask(platform: Platform, stage: Stage, beside: Stage | None, token: str, give_up_at: float) -> PlatformReply:
    """The function's own answer; the platform's are asked again. Raises ``FunctionUnreachable``."""
    while True:
        left_s = give_up_at - platform.now()
        try:
            answer = await platform.invoke(
                stage,
                INFO_PATH,
                b"",
                headers={"authorization": f"Bearer {token}"},
                timeout_s=max(1.0, min(PING_TIMEOUT_S, left_s)),
                beside=beside,
            )
        except FunctionUnreachable as error:
            if left_s <= 0:
                raise FunctionUnreachable(f"no answer in its whole budget: {error}") from error
        else:
            if answer.status not in PLATFORM_STATUSES:
                return answer
            if left_s <= 0:
                text = answer.body.decode(errors="replace")[:200]
                raise FunctionUnreachable(f"no answer in its whole budget, last {answer.status} {text}")
        await platform.sleep(PAUSE_S)


async def _functions_of(platform: Platform, stages: Collection[Stage]) -> Mapping[str, FunctionState]:
    states = await platform.functions()
    found = {stage: state_of(states, stage) for stage in sorted(stages)}
    missing = [stage.value for stage, state in found.items() if state is None]
    if missing:
        raise PreflightFailed(f"no function serves {', '.join(missing)}: apply the manifest of each")
    return {state.name: state for state in found.values() if state is not None}
