"""Functions of which nothing runs: what can be said of the local platform by its manifests alone."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from controller.platforms.base import (
    FunctionState,
    FunctionUnreachable,
    PlatformFigures,
    PlatformReply,
    ReplicaLife,
)
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_folder import read_manifests
from controller.platforms.local.platform import FIGURES
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage


class UnstartedPlatform:
    """The platform port for planning: it knows its functions and starts none."""

    def __init__(self, manifests: Path) -> None:
        """``manifests``: the folder. Raises ``ManifestRefused``."""
        self._functions = tuple(_state(manifest) for manifest in read_manifests(manifests).values())

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    async def sleep(self, duration_s: float) -> None:
        """Wait."""
        await asyncio.sleep(duration_s)

    def figures(self) -> PlatformFigures:
        """What one machine's processes cost."""
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
        """Raises ``FunctionUnreachable``: nothing runs."""
        raise FunctionUnreachable(f"{stage}: no function is started")

    async def scale(self, stage: Stage, num_replicas: int, *, hold_until: float) -> None:
        """Nothing is started."""

    async def retire(self, stage: Stage, instances: Sequence[InstanceId]) -> None:
        """There are no replicas."""

    async def release(self, stage: Stage) -> None:
        """There are no replicas."""

    async def replicas(self) -> Sequence[ReplicaLife]:
        """None."""
        return ()

    async def functions(self) -> Sequence[FunctionState]:
        """All functions, without replicas."""
        return self._functions


def _state(manifest: FunctionManifest) -> FunctionState:
    return FunctionState(
        name=manifest.name,
        stages=manifest.stages,
        url="",
        revision=f"{manifest.name}-00001",
        image=manifest.image,
        ready=True,
        reason="",
        num_replicas=0,
        num_ready=0,
        num_pending=0,
        num_in_flight=0,
        num_queued=0,
        min_scale=manifest.scaling.min_scale,
        max_scale=manifest.scaling.max_scale,
    )
