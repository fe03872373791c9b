"""What the local platform is told when it is made, and the process environment of a replica."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.platforms.local.cluster_defaults import LOCAL, ClusterDefaults
from controller.platforms.local.pacing import Pacing

PRELOAD = (
    # What uvicorn and FastAPI import only when a server or an application is made.
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
    "pydantic.v1",
    "fastapi",
    "redis.asyncio",
    "numpy",
    "safetensors.torch",
    "torch",
    "transformers.models.llama.modeling_llama",
    "functions.main",
    "functions.rollout.app",
    "functions.reward.app",
    "functions.learner.app",
    "functions.critic.app",
    "functions.reference.app",
)
"""What replicas import: done once in the fork server, which goes on without those that it cannot import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Settings of a ``LocalPlatform``."""

    manifests_dir: Path
    """Folder of ``*.yaml`` files, one Knative Service each."""
    log_dir: Path
    """Where each replica's output goes, as ``<instance>.log``. Made if missing."""
    num_cpus: float
    """Processors that replicas may request together."""
    memory_bytes: int
    num_gpus: int = 0
    """GPUs that replicas may request together, as if the machine had them."""
    gpu_devices: tuple[str, ...] = ()
    """GPUs that the machine really has, as ``CUDA_VISIBLE_DEVICES`` names them; they count instead of ``num_gpus``."""
    base_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What a container's image would set (PATH, HOME, PYTHONPATH, ...). Functions get nothing else of the
    controller's environment."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Set for every function, over the manifest's values."""
    config_values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of Secrets and ConfigMaps that manifests refer to, by ``object/key``."""
    host: str = "127.0.0.1"
    """Address of the proxy."""
    port: int = 0
    """Port of the proxy; 0 takes any free one."""
    python: str = "python3"
    """Interpreter of functions that name no environment."""
    python_environments: Mapping[str, str] = field(default_factory=dict)
    """Interpreters by the name in a manifest's ``rlhfless.dev/environment``. Each has rlhfless installed."""
    preload: tuple[str, ...] = PRELOAD
    cluster: ClusterDefaults = LOCAL
    """Scaling of functions whose manifests do not say otherwise."""
    drain_quiet_s: float = 0.0
    """How long a draining replica is left alone before SIGTERM. Knative waits 30 s, for requests that its ingress
    still sends there; here nothing is sent to a replica that drains."""
    stop_grace_s: float = 3.0
    """Time that replicas have to end when the platform stops."""
    release_grace_s: float = 4.0
    """Time that replicas have to end when their stage is released."""
    pacing: Pacing = field(default_factory=Pacing)
    """How often load is reported and decisions are made."""
    queue_limit: int = 10_000
    """Requests that may wait for one revision; more get 503. Knative's activator holds them until its memory ends."""
    seed: int | None = None
    """Of the choices by percentage and of those between replicas. None: different each time."""
    num_ended_lives: int = 10_000
    """Lives of ended replicas that are remembered."""
    num_ended_logs: int = 200
    """Log files of ended replicas that are kept."""


def replace_process_environment(values: Mapping[str, str]) -> None:
    """Give this process, a replica that was just forked, its own environment in place of the fork server's."""
    os.environ.clear()
    os.environ.update(values)
