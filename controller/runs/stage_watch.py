"""Watches a stage while a call to it waits, so that a run says why nothing happens instead of waiting in silence."""

from collections.abc import Awaitable, Callable

from controller.platforms.base import Platform
from controller.platforms.stage_routing import state_of
from controller.runs.errors import StageUnavailable
from shared.contracts.stage import Stage

LOOK_EVERY_S = 5.0
PATIENCE_S = 600.0
"""How long a stage may be without a ready replica, for a reason that the platform knows. A node with a GPU may take
minutes to come; what does not start in this time needs a person."""


async def watch_stage(platform: Platform, stage: Stage, notify: Callable[[str], Awaitable[None]]) -> None:
    """Report each new reason why the stage has no ready replica. Raises ``StageUnavailable`` when patience ends."""
    reported, waiting_since = "", platform.now()
    while True:
        await platform.sleep(LOOK_EVERY_S)
        state = state_of(await platform.functions(), stage)
        if state is None or state.num_ready > 0 or not state.reason:
            waiting_since = platform.now()
            continue
        if state.reason != reported:
            reported = state.reason
            await notify(f"{stage} has no replica: {reported}")
        if platform.now() - waiting_since > PATIENCE_S:
            raise StageUnavailable(f"{stage} has had no replica for {PATIENCE_S:g} s: {state.reason}")
