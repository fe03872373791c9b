"""All functions of the platform, and the clockwork that drives them. Everything but the network and the processes.

What starts replicas and what tells the time are given, so that the same functions run as processes on this machine
and in virtual time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.platforms.base import FunctionUnknown, ReplicaLife
from controller.platforms.local.function import Function
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.place import Place
from controller.platforms.local.revision import Revision
from controller.platforms.local.routing import find_route
from controller.platforms.local.scaling_annotations import PREFIX, AnnotationRefused
from controller.platforms.local.traffic import TrafficRefused, check_revisions
from controller.platforms.stage_routing import function_of
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

logger = logging.getLogger(__name__)


class RevisionUnknown(Exception):
    """No function has a revision of this name."""


class FunctionSet:
    """Functions by name."""

    def __init__(self, place: Place, *, num_ended_lives: int) -> None:
        self._place = place
        self._functions: dict[str, Function] = {}
        self._ended: deque[ReplicaLife] = deque(maxlen=num_ended_lives)
        self._clockwork: list[asyncio.Task[None]] = []
        self._stopped = False

    @property
    def functions(self) -> Mapping[str, Function]:
        """By name."""
        return self._functions

    def start(self, *, tick_after_s: float = 0.0) -> None:
        """Begin to report at once, and to decide a while later: on a cluster the two keep no step."""
        pacing = self._place.pacing
        for delay_s, period_s, act in (
            (0.0, pacing.report_s, Function.report),
            (tick_after_s, pacing.tick_s, Function.tick),
        ):
            self._clockwork.append(asyncio.create_task(self._every(period_s, act, delay_s)))

    async def stop(self, *, grace_s: float) -> None:
        """End all replicas. Nothing starts any more."""
        self._stopped = True
        for task in self._clockwork:
            task.cancel()
        await asyncio.gather(*self._clockwork, return_exceptions=True)
        await asyncio.gather(*(function.stop(grace_s=grace_s) for function in self._functions.values()))

    def apply(self, manifests: Mapping[str, FunctionManifest], environments: Mapping[str, Mapping[str, str]]) -> None:
        """Follow manifests: new functions, and new revisions of those whose template has changed.

        No function is taken away. Raises ``ManifestRefused``; then nothing has changed.
        """
        for name, manifest in manifests.items():
            try:
                if name in self._functions:
                    self._functions[name].check(manifest)
                else:
                    check_revisions(manifest.traffic, [f"{name}-00001"])
            except TrafficRefused as error:
                raise ManifestRefused(manifest.source, f"spec.traffic{error.field}", error.reason) from error
        for name, manifest in manifests.items():
            if name in self._functions:
                self._functions[name].apply(manifest, environments[name])
            else:
                self._functions[name] = Function(
                    manifest, environments[name], self._place, on_ended=self._replica_ended
                )

    def route(self, host: str, target: bytes) -> tuple[Revision, bytes] | None:
        """The revision that a request goes to, and the target that it has there; None where no function is meant."""
        hosts = {
            label: (function, tag) for function in self._functions.values() for label, tag in function.hosts().items()
        }
        # A function's own name comes before another one's tag.
        hosts.update({name: (function, "") for name, function in self._functions.items()})
        found = find_route(hosts, host, target)
        if found is None:
            return None
        (function, tag), seen_target = found
        return function.choose_revision(tag), seen_target

    def of_stage(self, stage: Stage, beside: Stage | None = None) -> Function:
        """The function that serves a stage, if possible in one process with another. Raises ``FunctionUnknown``."""
        stages = {name: function.manifest.stages for name, function in self._functions.items()}
        name = function_of(stages, stage, beside=beside)
        if name is not None:
            return self._functions[name]
        raise FunctionUnknown(f"no manifest serves the stage {stage.value}")

    def annotate_revision(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Edit autoscaling annotations of a revision, as ``kubectl patch revision`` does; None takes one away.

        Raises ``RevisionUnknown`` and ``AnnotationRefused``; then nothing has changed.
        """
        for key in annotations:
            if not key.startswith(PREFIX):
                raise AnnotationRefused(key, f"only annotations that begin with {PREFIX} scale a revision")
        changes = {key.removeprefix(PREFIX): value for key, value in annotations.items()}
        for function in self._functions.values():
            if name in function.revisions:
                function.revisions[name].annotate(changes)
                return
        known = [revision for function in self._functions.values() for revision in function.revisions]
        raise RevisionUnknown(f"no revision {name!r}; there are {', '.join(known)}")

    def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """See ``Platform.retire``."""
        self.of_stage(stage).finish(instances)

    def lives(self) -> list[ReplicaLife]:
        """Lives of all replicas, the ended ones first."""
        return [*self._ended, *(life for function in self._functions.values() for life in function.lives())]

    def _replica_ended(self, life: ReplicaLife) -> None:
        self._ended.append(life)
        # What it had reserved may let another function's replica start.
        self._place.loop.call_soon(self._reconcile)

    def _reconcile(self) -> None:
        if not self._stopped:
            self._each(Function.reconcile, self._functions.values())

    async def _every(self, period_s: float, act: Callable[[Function], None], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            await asyncio.sleep(period_s)
            self._each(act, self._functions.values())

    def _each(self, act: Callable[[Function], None], functions: Iterable[Function]) -> None:
        for function in functions:
            try:
                act(function)
            except Exception:
                logger.exception("function %s", function.manifest.name)
