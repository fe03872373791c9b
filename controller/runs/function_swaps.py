"""The changes that were asked for: which one waits for what, and how each has ended.

One task performs them, the one that drives the runs: so between two runs, and between two steps, nothing else uses a
function.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.platforms.base import FunctionState, Platform
from controller.platforms.editing import FunctionChange, FunctionEditor, Proposal
from controller.runs.errors import RunConflict
from controller.runs.function_info import Announced
from controller.runs.function_swap import Ping, SwapFailed, drained, function_state, swap, take_up

log = logging.getLogger(__name__)


class When(StrEnum):
    """When a change is made."""

    NOW = "now"
    """At once, and refused while a run goes on."""
    IDLE = "idle"
    """As soon as no run goes on."""
    STEP_BOUNDARY = "step_boundary"
    """Between two steps of the run that goes on, if one does."""


class SwapState(StrEnum):
    """Where a change stands."""

    WAITING = "waiting"
    DRAINING = "draining"
    STARTING = "starting"
    CHECKING = "checking"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing goes on any more."""
        return self in (SwapState.DONE, SwapState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """One change of one function."""

    function: str
    change: FunctionChange
    when: When
    state: SwapState = SwapState.WAITING
    reason: str = ""
    """Why it failed, or what it is that was noticed."""
    requested_at: float
    ended_at: float | None = None
    revision: str = ""
    """What gets the requests, once it is over."""
    model: str | None = None
    """What the new revision says of its model."""
    from_outside: bool = False
    """Whether somebody else made the revision, and it was only taken up here."""


class EditingUnsupported(Exception):
    """The platform's functions cannot be changed through the controller."""


class FunctionSwaps:
    """Changes by function: one at a time of each."""

    def __init__(
        self,
        platform: Platform,
        editor: FunctionEditor | None,
        ping: Ping,
        *,
        run_goes_on: Callable[[], Awaitable[str | None]],
    ) -> None:
        """``run_goes_on``: the id of the run that uses the functions now, or None."""
        self._platform = platform
        self.editor = editor
        """None where the platform's functions cannot be changed."""
        self.ping = ping
        self._run_goes_on = run_goes_on
        self.on_request: Callable[[], None] = lambda: None
        """Called when something new waits."""
        self._swaps: dict[str, Swap] = {}
        self._settled: dict[str, str] = {}
        """The newest revision of each function that needs no taking up: it was made, or refused, here."""

    @property
    def swaps(self) -> Mapping[str, Swap]:
        """The last change of each function."""
        return self._swaps

    async def request(self, function: str, change: FunctionChange, when: When) -> Swap:
        """Ask for a change. Raises ``FunctionUnknown``, ``EditingUnsupported``, ``RunConflict`` while it cannot be."""
        if self.editor is None:
            raise EditingUnsupported("functions of this platform are not changed through the controller")
        await function_state(self._platform, function)
        known = self._swaps.get(function)
        if known is not None and not known.state.is_over and known.state is not SwapState.WAITING:
            raise RunConflict(f"{function} is being changed now ({known.state}): wait until that is over")
        if when is When.NOW and (run := await self._run_goes_on()) is not None:
            raise RunConflict(
                f"run {run} uses {function}: change it when the run is over (when=idle) or between two of its steps "
                "(when=step_boundary)"
            )
        asked = Swap(function=function, change=change, when=when, requested_at=self._platform.now())
        self._swaps[function] = asked
        self.on_request()
        return asked

    async def perform_idle(self) -> bool:
        """Between two runs: make every change that waits, and take up revisions from outside. True if one was made."""
        waiting = [one for one in self._swaps.values() if one.state is SwapState.WAITING]
        for one in waiting:
            await self._perform(one, self.ping)
        taken_up = [await self._take_up(state) for state in await self._outside()]
        return bool(waiting or taken_up)

    async def perform_at_boundary(self, ping: Ping) -> tuple[Swap, ...]:
        """Between two steps: make the changes that were asked for then. How each has ended.

        ``ping`` asks a function what it is, and whether the run can go on with it.
        """
        waiting = [
            one for one in self._swaps.values() if one.state is SwapState.WAITING and one.when is When.STEP_BOUNDARY
        ]
        return tuple([await self._perform(one, ping) for one in waiting])

    async def outside(self) -> tuple[FunctionState, ...]:
        """Functions with a newer revision that somebody else made, and that only the controller's tie keeps idle."""
        return tuple(await self._outside())

    async def _outside(self) -> list[FunctionState]:
        if self.editor is None:
            return []
        found = []
        for state in await self._platform.functions():
            newest = state.revisions[-1] if state.revisions else None
            if newest is None or state.pinned or newest.name == state.revision or newest.percent or newest.tags:
                continue
            if self._settled.get(state.name) != newest.name:
                found.append(state)
        return found

    async def _perform(self, asked: Swap, ping: Ping) -> Swap:
        assert self.editor is not None, "nothing is asked for without an editor"

        async def tell(what: str) -> None:
            self._note(asked.function, state=SwapState(what))

        return await self._ended(
            asked.function, swap(self._platform, self.editor, asked.function, asked.change, ping=ping, tell=tell)
        )

    async def _take_up(self, state: FunctionState) -> Swap:
        """Take up a revision from outside in the same way: the old one goes first."""
        assert self.editor is not None, "nothing is noticed without an editor"
        editor, newest = self.editor, state.revisions[-1].name
        self._swaps[state.name] = Swap(
            function=state.name,
            change=FunctionChange(),
            when=When.IDLE,
            reason=f"{newest} was made from outside",
            requested_at=self._platform.now(),
            from_outside=True,
        )

        async def tell(what: str) -> None:
            self._note(state.name, state=SwapState(what))

        async def follow() -> Announced:
            await tell("draining")
            try:
                await drained(self._platform, state.name)
            except TimeoutError as error:
                raise SwapFailed(str(error), revision=state.revision, refused=newest) from error
            await tell("starting")
            proposal = Proposal(function=state.name, before=state.revision, revision=newest)
            return await take_up(self._platform, editor, proposal, ping=self.ping, tell=tell)

        return await self._ended(state.name, follow())

    async def _ended(self, function: str, work: Awaitable[Announced]) -> Swap:
        try:
            announced = await work
        except SwapFailed as error:
            log.warning("%s", error)
            if error.refused:
                self._settled[function] = error.refused
            self._note(function, state=SwapState.FAILED, reason=str(error), revision=error.revision)
        except Exception as error:
            log.exception("the change of %s failed", function)
            self._note(function, state=SwapState.FAILED, reason=f"the controller failed with {type(error).__name__}")
        else:
            revision, model = announced.function.revision, announced.says.model
            self._settled[function] = revision
            self._note(function, state=SwapState.DONE, revision=revision, model=model)
        self._note(function, ended_at=self._platform.now())
        return self._swaps[function]

    def _note(self, function: str, **changes: object) -> None:
        self._swaps[function] = replace(self._swaps[function], **changes)  # type: ignore[arg-type]  # fields by name
