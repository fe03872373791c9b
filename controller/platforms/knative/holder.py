"""Raises and lowers the minima of revisions, one patch after another, and sweeps what others left raised."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.platforms.knative.calls import Calls
from controller.platforms.knative.function_reading import RevisionLimits
from controller.platforms.knative.holding import Hold, Wanted, given_back, raised, settle_s, wanted_minimum
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError, NotPermitted, ObjectUnknown
from controller.platforms.knative.kube_resources import REVISIONS, KubeObject
from controller.platforms.knative.sweeping import sweep
from shared.contracts.stage import Stage

log = logging.getLogger(__name__)

SWEEP_EVERY_S = 30.0
RETRY_S = 2.0
"""After a patch that the API server did not take."""
ASK_AGAIN_S = 300.0
"""After a patch that the account may not make: somebody may extend its Role."""
FALLBACK = (
    "the scale is left to Knative: N calls at a time make N replicas, with containerConcurrency 1 and "
    "target-utilization-percentage 100, but only once they are sent"
)

NOTHING = Wanted(num_replicas=0, until=0.0, look_at=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The minimum that this holder has given a revision."""

    function: str
    wanted: Wanted


class Holder:
    """Keeps minima in step with what is asked for. One task sends all patches, so none overtakes another."""

    def __init__(
        self,
        client: KubeClient,
        calls: Calls,
        *,
        name: str,
        clock: Callable[[], float],
        limits: Callable[[str], RevisionLimits | None],
        on_patched: Callable[[KubeObject], None] = lambda revision: None,
    ) -> None:
        """``name`` is what the revision says of who holds it; ``limits``: a function's main revision."""
        self._client = client
        self._calls = calls
        self._name = name
        self._clock = clock
        self._limits = limits
        self._on_patched = on_patched
        self._holds: dict[str, dict[Stage, Hold]] = {}
        self._raised: dict[str, Raised] = {}
        self._not_before = 0.0
        self._swept_at: float | None = None
        self._warned = False
        self._wake = asyncio.Event()

    def hold(self, function: str, stage: Stage, hold: Hold | None) -> None:
        """Take note of a minimum that a stage asks for; None withdraws it."""
        holds = self._holds.setdefault(function, {})
        holds.pop(stage, None)
        if hold is not None and hold.num_replicas > 0:
            holds[stage] = hold
        self._wake.set()

    def release(self, function: str) -> None:
        """Withdraw all of a function's."""
        self._holds.pop(function, None)
        self._wake.set()

    def calls_changed(self, function: str) -> None:
        """A function's requests have become more or fewer."""
        if any(raised.function == function for raised in self._raised.values()):
            self._wake.set()

    async def run(self) -> None:
        """Follow what is asked for until cancelled."""
        while True:
            self._wake.clear()
            try:
                look_at = await self._follow_all()
            except Exception:
                log.exception("minima could not be followed")
                look_at = self._clock() + RETRY_S
            delay_s = max(0.0, look_at - self._clock())
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def lower_all(self) -> None:
        """Lower everything that was raised here. Raises ``KubeError``."""
        self._holds.clear()
        for name in list(self._raised):
            await self._lower(name)

    async def _follow_all(self) -> float:
        """See to every function. Returns when something may change by itself (Unix seconds)."""
        now = self._clock()
        if now < self._not_before:
            return self._not_before
        try:
            functions = {*self._holds, *(seen.function for seen in self._raised.values())}
            looks = [await self._follow(function) for function in sorted(functions)]
            if self._swept_at is None or now >= self._swept_at + SWEEP_EVERY_S:
                await sweep(self._client, now, spared=self._raised)
                self._swept_at = now
        except NotPermitted as error:
            if not self._warned:
                log.warning("%s; until then %s", error, FALLBACK)
            self._warned, self._not_before = True, now + ASK_AGAIN_S
            return self._not_before
        except KubeError as error:
            log.warning("a minimum was not changed, trying again: %s", error)
            self._not_before = now + RETRY_S
            return self._not_before
        return min([self._swept_at + SWEEP_EVERY_S, *(at for at in looks if at is not None)])

    async def _follow(self, function: str) -> float | None:
        limits = self._limits(function)
        for name in [name for name, seen in self._raised.items() if seen.function == function]:
            if limits is None or name != limits.name:
                await self._lower(name)
        if limits is None:
            return self._clock() + RETRY_S
        before = self._raised.get(limits.name)
        wanted = wanted_minimum(
            self._holds.get(function, {}).values(),
            self._calls.sent_at(function),
            now=self._clock(),
            settled_after_s=settle_s(limits.window_s),
            raised=0 if before is None else before.wanted.num_replicas,
        )
        if wanted.num_replicas == 0:
            await self._lower(limits.name)
            self._holds.pop(function, None)
            return None
        bounded = replace(wanted, num_replicas=min(wanted.num_replicas, limits.max_scale or wanted.num_replicas))
        if (
            before is None
            or (before.wanted.num_replicas, before.wanted.until) != (wanted.num_replicas, wanted.until)
            # Somebody else has lowered it.
            or limits.min_scale < bounded.num_replicas
        ):
            await self._raise(function, limits.name, wanted, bounded)
        return wanted.look_at

    async def _raise(self, function: str, name: str, wanted: Wanted, bounded: Wanted) -> None:
        """Raise the revision's minimum to what is wanted, as far as its maximum allows."""
        # Noted before it is done: what may have been done has to be undone.
        self._raised.setdefault(name, Raised(function=function, wanted=NOTHING))
        try:
            patched = await self._client.edit(REVISIONS, name, lambda revision: raised(revision, bounded, self._name))
        except (NotPermitted, ObjectUnknown):
            del self._raised[name]
            raise
        self._raised[name] = Raised(function=function, wanted=wanted)
        self._on_patched(patched)

    async def _lower(self, name: str) -> None:
        if name not in self._raised:
            return
        try:
            self._on_patched(
                await self._client.edit(REVISIONS, name, lambda revision: given_back(revision, self._name))
            )
        except ObjectUnknown:
            log.info("revision %s is gone", name)
        del self._raised[name]
