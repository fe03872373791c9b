"""The platform port on a cluster: Knative Services, called by HTTP and scaled by their Revisions' annotations."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import httpx

from controller.platforms.base import (
    FunctionState,
    FunctionUnknown,
    FunctionUnreachable,
    PlatformFigures,
    PlatformReply,
    ReplicaLife,
)
from controller.platforms.knative.calls import Calls
from controller.platforms.knative.editor import KnativeEditor
from controller.platforms.knative.function_reading import (
    RevisionLimits,
    address_of,
    host_of,
    limits_of,
    main_revision,
    read_function,
    stages_of,
)
from controller.platforms.knative.holder import Holder
from controller.platforms.knative.holding import Hold
from controller.platforms.knative.invoker import Invoker, Target, max_calls
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError, KubeUnavailable, NotPermitted
from controller.platforms.knative.kube_resources import PODS, REVISIONS, SERVICES, KubeObject, labels_of, name_of
from controller.platforms.knative.mirror import Mirror
from controller.platforms.knative.pod_lives import PodLives
from controller.platforms.knative.pod_ranks import PodRanks
from controller.platforms.knative.pod_reading import FINISHED_COST, SERVICE_LABEL
from controller.platforms.knative.retrying import LONGEST_PAUSE_S
from controller.platforms.knative.settings import KnativeSettings
from controller.platforms.stage_routing import function_of
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from shared.service.ending import end_task

log = logging.getLogger(__name__)


class KnativePlatform:
    """Functions of one namespace. ``start`` before use, ``stop`` after it (or ``async with``).

    Its account needs: get, list and watch of Services, Revisions and pods. With patch of Revisions replicas are there
    before the calls; with patch of pods finished actors leave first. Without these it works, and says what it cannot.
    """

    def __init__(
        self,
        settings: KnativeSettings,
        *,
        clock: Callable[[], float] = time.time,
        api_transport: httpx.AsyncBaseTransport | None = None,
        call_transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``clock``: Unix time in seconds. It and the transports, which are the network's, are others in tests."""
        self._settings = settings
        self._clock = clock
        self._client = KubeClient(settings.access, transport=api_transport)
        self._calls = Calls(self.now, on_change=self._calls_changed)
        self._invoker = Invoker(self._calls, transport=call_transport)
        self._lives = PodLives(self.now)
        self._services = Mirror(self._client, SERVICES)
        self._revisions = Mirror(self._client, REVISIONS)
        self._pods = Mirror(
            self._client,
            PODS,
            selector=SERVICE_LABEL,
            on_change=self._lives.changed,
            on_gone=self._lives.gone,
        )
        self._holder = Holder(
            self._client,
            self._calls,
            name=settings.holder,
            clock=self.now,
            limits=self._limits,
            on_patched=self._revisions.take,
        )
        self.editor = KnativeEditor(self._client, self._services, self.now)
        """Changes the functions."""
        self._holding: asyncio.Task[None] | None = None
        self._ranks = PodRanks(self._client, self._pods)
        self._asked: dict[Stage, int] = {}
        """Replicas that each stage asked for last."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Read what there is, follow it, and lower minima that nobody holds any more.

        Waits for an API server that does not answer. Raises another ``KubeError`` where Services or Revisions cannot
        be read.
        """
        for mirror in (self._services, self._revisions, self._pods):
            await self._begun(mirror)
        self._holding = asyncio.create_task(self._holder.run(), name="hold minima")

    async def _begun(self, mirror: Mirror) -> None:
        while True:
            try:
                return await mirror.start()
            except KubeUnavailable as error:
                log.warning("waiting for the cluster: %s", error)
                await self.sleep(LONGEST_PAUSE_S)
            except NotPermitted as error:
                if mirror is not self._pods:
                    raise
                log.warning("%s; until then replicas are not seen", error)
                return mirror.follow()

    async def stop(self) -> None:
        """Lower what was raised, and follow nothing any more."""
        if self._holding is not None:
            await end_task(self._holding)
            try:
                await self._holder.lower_all()
            except KubeError as error:
                log.warning("minima were left raised; a sweep lowers them when their time is over: %s", error)
        for mirror in (self._services, self._revisions, self._pods):
            await mirror.stop()
        await self._invoker.close()
        await self._client.close()

    def now(self) -> float:
        """Unix time in seconds."""
        return self._clock()

    async def sleep(self, duration_s: float) -> None:
        """Wait."""
        await asyncio.sleep(duration_s)

    def figures(self) -> PlatformFigures:
        """Knative's own, as measured."""
        return PlatformFigures()

    async def invoke(
        self,
        stage: Stage,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        beside: Stage | None = None,
    ) -> PlatformReply:
        """Call the stage's Service. See ``Platform.invoke``."""
        service = self._service_of(stage, beside)
        name, limits = name_of(service), self._limits(name_of(service))
        url = self._settings.ingress_url or address_of(service)
        if not url:
            raise FunctionUnreachable(f"{name}: Knative has not given it an address yet")
        target = Target(
            function=name,
            url=url.rstrip("/"),
            host=host_of(service) if self._settings.ingress_url else "",
            max_calls=max_calls(
                max_scale=0 if limits is None else limits.max_scale,
                container_concurrency=0 if limits is None else limits.container_concurrency,
            ),
        )
        return await self._invoker.invoke(target, path, body, headers=headers, timeout_s=timeout_s)

    async def scale(self, stage: Stage, num_replicas: int, *, hold_until: float) -> None:
        """Raise the minimum of the Revision that gets the requests. See ``Platform.scale``."""
        function = name_of(self._service_of(stage))
        if num_replicas > self._asked.get(stage, 0):
            pods = self._pods.objects.items()
            await self._ranks.give([name for name, pod in pods if labels_of(pod).get(SERVICE_LABEL) == function], None)
        self._asked[stage] = num_replicas
        self._holder.hold(function, stage, Hold(num_replicas=num_replicas, until=hold_until))

    async def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """Give these pods a low deletion cost. See ``Platform.retire``."""
        self._service_of(stage)
        await self._ranks.give(instances, FINISHED_COST)

    async def release(self, stage: Stage) -> None:
        """Withdraw every minimum of the function; Knative then drains its pods. See ``Platform.release``."""
        self._holder.release(name_of(self._service_of(stage)))

    async def replicas(self) -> Sequence[ReplicaLife]:
        """Lives of all pods of the functions, the ended ones first."""
        stages = {name: stages_of(service) for name, service in self._services.objects.items()}
        return self._lives.lives({name: found for name, found in stages.items() if found})

    async def functions(self) -> Sequence[FunctionState]:
        """All functions and their state, by name."""
        return [
            read_function(
                service,
                self._revisions_of(name),
                [pod for pod in self._pods.objects.values() if labels_of(pod).get(SERVICE_LABEL) == name],
                num_calls=self._calls.count(name),
            )
            for name, service in sorted(self._services.objects.items())
            if stages_of(service)
        ]

    def _service_of(self, stage: Stage, beside: Stage | None = None) -> KubeObject:
        services = self._services.objects
        name = function_of({name: stages_of(each) for name, each in services.items()}, stage, beside=beside)
        if name is not None:
            return services[name]
        raise FunctionUnknown(
            f"no Service in namespace {self._client.namespace} serves the stage {stage.value}: apply its manifest"
        )

    def _revisions_of(self, function: str) -> list[KubeObject]:
        return [found for found in self._revisions.objects.values() if labels_of(found).get(SERVICE_LABEL) == function]

    def _limits(self, function: str) -> RevisionLimits | None:
        service = self._services.objects.get(function)
        revision = None if service is None else self._revisions.objects.get(main_revision(service))
        return None if revision is None else limits_of(revision)

    def _calls_changed(self, function: str) -> None:
        self._holder.calls_changed(function)
