"""The platform port on one machine: manifests in, processes behind a proxy out."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

from controller.platforms.base import FunctionState, FunctionUnreachable, PlatformFigures, PlatformReply, ReplicaLife
from controller.platforms.local.capacity import Machine
from controller.platforms.local.fork_client import ForkServerError
from controller.platforms.local.function_set import FunctionSet
from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.http_stream import BrokenStream
from controller.platforms.local.launcher import Launcher
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_folder import read_manifests
from controller.platforms.local.manifest_parser import ENVIRONMENT_ANNOTATION
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.place import Place
from controller.platforms.local.proxy import Proxy, Route
from controller.platforms.local.python_environments import PythonEnvironments
from controller.platforms.local.replica_environment import THREAD_DEFAULTS, function_environment
from controller.platforms.local.routing import PATH_PREFIX
from controller.platforms.local.settings import LocalSettings
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

logger = logging.getLogger(__name__)

NUM_NEAR = 2**16
"""All replicas are on the learner's node: there is no other."""
FIGURES = PlatformFigures(
    # A warm fork server starts replicas, and they wait for nobody when they end.
    cold_start_s=1.5,
    drain_s=0.05,
    shared_threads=True,
    num_near=NUM_NEAR,
)


class LocalPlatform:
    """Runs each function as processes on this machine, with Knative's semantics.

    Made where its loop runs. ``start`` before use, ``stop`` after it (or ``async with``): no process outlives it, nor
    the controller's death.
    """

    def __init__(
        self,
        settings: LocalSettings,
        *,
        read: Callable[[Path], Mapping[str, FunctionManifest]] | None = None,
    ) -> None:
        """``read``: the functions of the manifests' folder, as ``read_manifests`` reads them."""
        self._settings = settings
        self._read = read or partial(read_manifests, cluster=settings.cluster)
        self._environments = PythonEnvironments(
            {"": settings.python, **settings.python_environments},
            preload=settings.preload,
            env={**THREAD_DEFAULTS, **settings.base_environment},
            log_dir=settings.log_dir,
        )
        machine = Machine(
            num_cpus=settings.num_cpus,
            memory_bytes=settings.memory_bytes,
            num_gpus=settings.num_gpus,
            gpu_devices=settings.gpu_devices,
        )
        place = Place(
            starter=Launcher(
                machine, self._environments, log_dir=settings.log_dir, num_ended_logs=settings.num_ended_logs
            ),
            clock=time.time,
            queue_limit=settings.queue_limit,
            drain_quiet_s=settings.drain_quiet_s,
            pacing=settings.pacing,
            random=Random(settings.seed),
        )
        self._functions = FunctionSet(place, num_ended_lives=settings.num_ended_lives)
        self._proxy = Proxy(self._route)
        self._proxy_origin = HttpOrigin(settings.host, settings.port)
        self._port = settings.port
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "LocalPlatform":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """The proxy's address. A function's own is in ``functions()``."""
        return f"http://{self._settings.host}:{self._port}"

    @property
    def not_honoured(self) -> Mapping[str, tuple[str, ...]]:
        """Manifest fields that have no effect on this machine, by function."""
        return {name: function.manifest.not_honoured for name, function in self._functions.functions.items()}

    async def start(self) -> None:
        """Read the manifests, listen, and warm the environments (which goes on in the background).

        Raises ``ManifestRefused`` and ``PortInUse``; then nothing is left running.
        """
        try:
            self._settings.log_dir.mkdir(parents=True, exist_ok=True)
            self.apply_manifests()
            self._port = await self._proxy.start(self._settings.host, self._settings.port)
            self._proxy_origin = HttpOrigin(self._settings.host, self._port)
            functions = self._functions.functions.values()
            for environment in {function.manifest.python_environment for function in functions}:
                self._background.append(asyncio.create_task(self._warm(environment)))
            self._functions.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all replicas, all fork servers and the proxy. Nothing starts any more."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        grace_s = self._settings.stop_grace_s
        stopping = asyncio.create_task(self._functions.stop(grace_s=grace_s))
        await asyncio.wait([stopping], timeout=grace_s + 1)
        await self._environments.close()
        await stopping
        self._proxy_origin.close()
        await self._proxy.stop()

    def apply_manifests(self) -> None:
        """Read the manifests (again). A changed template becomes a new revision; no function is taken away.

        Raises ``ManifestRefused``; then nothing has changed.
        """
        settings = self._settings
        manifests = self._read(settings.manifests_dir)
        environments = {
            name: function_environment(
                manifest,
                base=settings.base_environment,
                overrides=settings.environment,
                config_values=settings.config_values,
            )
            for name, manifest in manifests.items()
        }
        for manifest in manifests.values():
            if manifest.python_environment not in ("", *settings.python_environments):
                known = ", ".join(sorted(settings.python_environments)) or "none"
                reason = f"no environment {manifest.python_environment!r}; known: {known}"
                raise ManifestRefused(manifest.source, ENVIRONMENT_ANNOTATION, reason)
        self._functions.apply(manifests, environments)
        for manifest in manifests.values():
            if manifest.not_honoured:
                logger.warning("%s: no effect on one machine: %s", manifest.source, ", ".join(manifest.not_honoured))

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        """Wait."""
        await asyncio.sleep(duration_s)

    def figures(self) -> PlatformFigures:
        """What one machine's processes cost. See ``Platform.figures``."""
        return FIGURES

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
        """Call the stage's function through the proxy. See ``Platform.invoke``."""
        name = self._functions.of_stage(stage, beside).manifest.name
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._proxy_origin.fetch(
                    "POST" if body else "GET", path, headers={**headers, "host": name}, body=body
                )
        except TimeoutError as error:
            raise FunctionUnreachable(f"{name}: no answer within {timeout_s:g} s") from error
        except (OSError, BrokenStream) as error:
            raise FunctionUnreachable(f"{name}: {error}") from error
        return PlatformReply(status=answer.status, headers=answer.headers, body=answer.body)

    async def scale(self, stage: Stage, num_replicas: int, *, hold_until: float) -> None:
        """Raise the minimum of the stage's function, up to its maximum. See ``Platform.scale``."""
        remaining_s = hold_until - time.time()
        until = asyncio.get_running_loop().time() + remaining_s
        self._functions.of_stage(stage).hold(stage, num_replicas, until=until)

    async def annotate_revision(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Edit autoscaling annotations of a revision, with their full keys; None takes one away. No new revision.

        Raises ``RevisionUnknown`` and ``AnnotationRefused``; then nothing has changed.
        """
        self._functions.annotate_revision(name, annotations)

    async def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """Give these replicas a low deletion cost. See ``Platform.retire``."""
        self._functions.retire(stage, instances)

    async def release(self, stage: Stage) -> None:
        """Free the function's replicas: all are gone within ``release_grace_s``. See ``Platform.release``."""
        self._functions.of_stage(stage).release(grace_s=self._settings.release_grace_s)

    async def replicas(self) -> Sequence[ReplicaLife]:
        """Lives of all replicas, the ended ones first."""
        return self._functions.lives()

    async def functions(self) -> Sequence[FunctionState]:
        """All functions and their state."""
        functions = self._functions.functions
        return [function.state(f"{self.url}{PATH_PREFIX}{name}") for name, function in functions.items()]

    def _route(self, host: str, target: bytes) -> Route | None:
        found = self._functions.route(host, target)
        return None if found is None else Route(function=found[0], target=found[1])

    async def _warm(self, environment: str) -> None:
        try:
            await self._environments.warm(environment)
        except ForkServerError as error:
            logger.error("environment %r: %s", environment or "default", error)
