"""What changes of functions need to know of the runs: who uses the functions, and how one is asked what it is."""

import logging

from controller.platforms.base import FunctionState, Platform
from controller.platforms.editing import FunctionEditor
from controller.runs.function_info import Announced
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.preflight import ping
from controller.runs.state import RunState
from shared.store.base import RunStore

log = logging.getLogger(__name__)


def function_swaps(platform: Platform, editor: FunctionEditor, runs: RunStore, *, token: str) -> FunctionSwaps:
    """Changes of the platform's functions. ``token`` is what the functions ask of their callers."""

    async def notify(line: str) -> None:
        log.warning("%s", line)

    async def ask(function: FunctionState) -> Announced:
        return await ping(platform, function, token=token, notify=notify)

    async def going_on() -> str | None:
        return await run_going_on(runs)

    return FunctionSwaps(platform, editor, ask, run_goes_on=going_on)


async def run_going_on(runs: RunStore) -> str | None:
    """The id of a run that uses the functions now, whichever controller drives it."""
    going_on = (RunState.RUNNING, RunState.PAUSED)
    return next((record.id for record in await runs.list() if record.state in going_on), None)
