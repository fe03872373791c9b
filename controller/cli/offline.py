"""What a config would take, told without a controller: by this machine's manifests and stated defaults."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from controller.platforms.local.unstarted import UnstartedPlatform
from controller.runs.expectation import as_json
from controller.runs.service import RunService
from controller.runs.supervisor import Supervisor
from controller.settings import ControllerSettings
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs


async def expectation_here(document: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """What a step is expected to take, as ``POST /v1/plans`` answers. No earlier run is known here.

    Raises ``ConfigInvalid``, ``SettingsInvalid`` and ``ManifestRefused``.
    """
    settings = ControllerSettings.from_environment()
    store, blobs, platform = memory_store(time.time), MemoryBlobs(), UnstartedPlatform(settings.manifests)
    supervisor = Supervisor(settings, store, blobs, platform, token="")
    service = RunService(settings, store, blobs, platform, supervisor)
    return as_json(await service.expect(document, overrides))
