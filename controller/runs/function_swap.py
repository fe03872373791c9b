"""One function's change from a revision to another, without the two ever being there at once.

    drain the old to zero ─▶ make the new ─▶ wait for it ─▶ send it the requests ─▶ ask it what it is
                                   └──────────────┴────────── back to the old on failure ◀──┘

Old and new would fight for the same GPU, and a run would mix them; so the requests are tied to a revision's name from
the beginning to the end.
"""

from collections.abc import Awaitable, Callable

from controller.platforms.base import FunctionState, FunctionUnknown, Platform
from controller.platforms.editing import (
    ChangeNotPermitted,
    ChangeRefused,
    ChangeUnanswered,
    FunctionChange,
    FunctionEditor,
    Proposal,
)
from controller.platforms.stage_routing import function_of
from controller.runs.function_info import Announced, FunctionUnfit
from controller.runs.preflight import PreflightFailed

DRAIN_BUDGET_S = 700.0
"""A replica may end its last request first, which takes ``timeoutSeconds`` at most; then 30 s of quiet."""
START_BUDGET_S = 1800.0
"""Image pull, a node that has to come, and the process."""
FAILED_BUDGET_S = 600.0
"""How long a revision may be called failed: Knative says so at once of one whose node is still to come."""
LOOK_EVERY_S = 0.5

Ping = Callable[[FunctionState], Awaitable[Announced]]
"""Asks a function what it is. Raises ``PreflightFailed``, ``FunctionUnfit``."""
Tell = Callable[[str], Awaitable[None]]
"""Receives what is being done now: ``draining``, ``starting``, ``checking``."""

EDIT_FAILURES = (ChangeRefused, ChangeNotPermitted, ChangeUnanswered, FunctionUnknown)


class SwapFailed(Exception):
    """The change was not made, or was taken back. ``revision`` gets the requests, as before."""

    def __init__(self, message: str, *, revision: str, refused: str = "") -> None:
        super().__init__(message)
        self.revision = revision
        self.refused = refused
        """The revision that was not taken, if it came to be one."""


async def swap(
    platform: Platform, editor: FunctionEditor, function: str, change: FunctionChange, *, ping: Ping, tell: Tell
) -> Announced:
    """Make the change; what the new revision announces. Raises ``SwapFailed``."""
    old = await function_state(platform, function)
    try:
        if any(revision.percent for revision in old.revisions):
            await editor.route(function, old.revision)
            await tell("draining")
            await drained(platform, function)
        # Else none has ever been ready, and there is nothing to drain: what cannot start does not end either.
        await tell("starting")
        proposal = await editor.propose(function, change)
    except (*EDIT_FAILURES, TimeoutError) as error:
        raise SwapFailed(f"{function} stays as it is: {error}", revision=old.revision) from error
    return await take_up(platform, editor, proposal, ping=ping, tell=tell)


async def take_up(
    platform: Platform, editor: FunctionEditor, proposal: Proposal, *, ping: Ping, tell: Tell
) -> Announced:
    """Send the requests to a new revision once it is ready, and check it; else back. Raises ``SwapFailed``."""
    function = proposal.function
    try:
        await _started(platform, proposal)
        await editor.route(function, proposal.revision)
        await tell("checking")
        return await ping(await function_state(platform, function))
    except (*EDIT_FAILURES, TimeoutError, PreflightFailed, FunctionUnfit) as error:
        refused = await _back(editor, proposal)
        raise SwapFailed(
            f"{function} is back at {proposal.before or 'what it was'}: {error}",
            revision=proposal.before,
            refused=refused,
        ) from error


async def drained(platform: Platform, function: str) -> None:
    """End all replicas of a function and wait until they are gone. Raises ``TimeoutError``."""
    give_up_at = platform.now() + DRAIN_BUDGET_S
    states = await platform.functions()
    served = {state.name: state.stages for state in states}
    for stage in (await function_state(platform, function)).stages:
        if function_of(served, stage) == function:
            await platform.release(stage)
    while True:
        lives = [life for life in await platform.replicas() if life.function == function and life.ended_at is None]
        state = await function_state(platform, function)
        if not lives and not state.num_replicas:
            return
        if platform.now() > give_up_at:
            kept = f"; its manifest keeps {state.min_scale}" if state.min_scale else ""
            raise TimeoutError(f"{len(lives)} replicas of {function} were not gone in {DRAIN_BUDGET_S:g} s{kept}")
        await platform.sleep(LOOK_EVERY_S)


async def function_state(platform: Platform, function: str) -> FunctionState:
    """The function as it is now. Raises ``FunctionUnknown``."""
    for state in await platform.functions():
        if state.name == function:
            return state
    raise FunctionUnknown(f"there is no function {function!r}")


async def _started(platform: Platform, proposal: Proposal) -> None:
    """Wait until the new revision may get requests. Raises ``TimeoutError`` with the reason why it may not."""
    began_at, reason = platform.now(), "no reason is known"
    failing_since: float | None = None
    while True:
        now = platform.now()
        revisions = (await function_state(platform, proposal.function)).revisions
        found = next((revision for revision in revisions if revision.name == proposal.revision), None)
        if found is not None and found.ready:
            return
        if found is not None and found.reason:
            reason = found.reason
            failing_since = now if failing_since is None else failing_since
        else:
            failing_since = None
        if now - began_at > START_BUDGET_S or (failing_since is not None and now - failing_since > FAILED_BUDGET_S):
            raise TimeoutError(f"{proposal.revision} was not ready in {now - began_at:.0f} s: {reason}")
        await platform.sleep(LOOK_EVERY_S)


async def _back(editor: FunctionEditor, proposal: Proposal) -> str:
    """Take the proposal back. Raises ``SwapFailed`` where that fails too."""
    try:
        return await editor.withdraw(proposal)
    except EDIT_FAILURES as error:
        raise SwapFailed(
            f"{proposal.function} could not be brought back to {proposal.before}: {error}; route it there by hand",
            revision=proposal.revision,
            refused=proposal.revision,
        ) from error
