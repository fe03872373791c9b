"""The functions of one run: checked and tied to their revisions before it, looked at between its steps."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from controller.platforms.base import FunctionState, Platform
from controller.platforms.editing import ChangeNotPermitted, ChangeRefused, ChangeUnanswered
from controller.runs.config.run_config import RunConfig
from controller.runs.errors import RunFailed
from controller.runs.function_info import Announced, FunctionUnfit, tokenizer_disagreement
from controller.runs.function_swaps import FunctionSwaps, SwapState
from controller.runs.preflight import preflight
from shared.contracts.stage import Stage

log = logging.getLogger(__name__)

Notify = Callable[[str], Awaitable[None]]


class RevisionUnfit(RunFailed):
    """The requests of a run went to another revision, and the run cannot go on with that one."""


def stages_of(config: RunConfig) -> frozenset[Stage]:
    """The stages that every step of a run calls."""
    optional = {Stage.REFERENCE: config.uses_reference, Stage.CRITIC: config.uses_critic}
    return frozenset({Stage.ROLLOUT, Stage.REWARD, Stage.LEARNER, *(stage for stage, used in optional.items() if used)})


class RunFunctions:
    """Made for one owner of one run."""

    def __init__(
        self,
        platform: Platform,
        swaps: FunctionSwaps,
        stages: Collection[Stage],
        *,
        token: str,
        notify: Notify,
        tokenizer: str | None = None,
    ) -> None:
        """``tokenizer`` is the hash of the run's own: functions that announce one must have the same."""
        self._platform = platform
        self._swaps = swaps
        self._stages = frozenset(stages)
        self._token = token
        self._notify = notify
        self._tokenizer = tokenizer
        self._announced: dict[str, Announced] = {}
        self._told: set[str] = set()

    @property
    def revisions(self) -> Mapping[str, str]:
        """The revision that the run is tied to, by function."""
        return {name: each.function.revision for name, each in self._announced.items()}

    async def begin(self) -> None:
        """Check the run's functions and tie it to their revisions. Raises ``PreflightFailed``."""
        announced = await preflight(
            self._platform, self._stages, token=self._token, notify=self._notify, tokenizer=self._tokenizer
        )
        self._announced = dict(announced)
        for name, revision in self.revisions.items():
            await self._tie(name, revision)

    async def between_steps(self) -> None:
        """Make the changes that wait for this, and notice those from outside. Raises ``RevisionUnfit``."""
        for swap in await self._swaps.perform_at_boundary(self._fitting):
            done = swap.state is SwapState.DONE
            became = f"is {swap.revision} from this step on" if done else f"was not changed: {swap.reason}"
            await self._notify(f"{swap.function} {became}")
        for state in await self._swaps.outside():
            await self._tell_once(
                f"{state.name} has a new revision {state.revisions[-1].name} from outside; the run stays with "
                f"{state.revision}, and the new one is taken up when the run is over"
            )
        for state in await self._platform.functions():
            known = self._announced.get(state.name)
            if known is not None and known.function.revision != state.revision:
                await self._follow(state, known.function.revision)

    async def _follow(self, state: FunctionState, before: str) -> None:
        """The requests go to another revision than before: go on with it if it fits."""
        try:
            await self._fitting(state)
        except (FunctionUnfit, RunFailed) as error:
            raise RevisionUnfit(f"{state.name} went from {before} to {state.revision}: {error}") from error
        await self._notify(f"{state.name} went from {before} to {state.revision}: the run goes on with it")

    async def _fitting(self, state: FunctionState) -> Announced:
        """What the function announces, if it fits the run's others: then the run is with this revision.

        Raises ``FunctionUnfit``, ``PreflightFailed``.
        """
        found = await self._swaps.ping(state)
        others = [each for name, each in self._announced.items() if name != state.name]
        if disagreement := tokenizer_disagreement([*others, found], own=self._tokenizer):
            raise FunctionUnfit(disagreement)
        if state.name in self._announced:
            self._announced[state.name] = found
        return found

    async def _tie(self, function: str, revision: str) -> None:
        """Have the requests go to this revision, whatever comes to be the latest."""
        if self._swaps.editor is None or not revision:
            return
        try:
            await self._swaps.editor.route(function, revision)
        except (ChangeRefused, ChangeNotPermitted, ChangeUnanswered) as error:
            await self._tell_once(f"the run is not tied to its functions' revisions, only watched: {error}")

    async def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            await self._notify(line)
