"""What the local platform is told when it is made, and the process environment of a replica."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    drain_quiet_s: float = 0.0
    """How long a draining replica is left alone before SIGTERM (Knative: 30 s)."""
    stop_grace_s: float = 3.0
    """Time that replicas have to end when the platform stops."""
    release_grace_s: float = 4.0
    """Time that replicas have to end when their stage is released."""
    tick_s: float = 2.0
    """Time between two decisions of the autoscaler."""
    queue_limit: int = 10_000
    """Requests that may wait for one function; more get 503."""
    num_ended_lives: int = 10_000
    """Lives of ended replicas that are remembered."""
    num_ended_logs: int = 200
    """Log files of ended replicas that are kept."""


def replace_process_environment(values: Mapping[str, str]) -> None:
    """Give this process, a replica that was just forked, its own environment in place of the fork server's."""
    os.environ.clear()
    os.environ.update(values)
