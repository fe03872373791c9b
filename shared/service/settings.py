"""Process settings of a function, from its environment. Nothing else reads the environment."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.contracts.stage import Stage

GIB = 2**30


class SettingsInvalid(Exception):
    """A variable of the environment is missing or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """What a function's process needs to know. Secrets are kept out of ``repr``."""

    stages: tuple[Stage, ...]
    """``RLHFLESS_STAGES``: the stages served by this process, usually one."""
    redis_url: str
    """``REDIS_URL``."""
    redis_password: str | None = field(repr=False)
    """``REDIS_PASSWORD``, if the URL does not carry one."""
    blob_url: str
    """``RLHFLESS_BLOB_URL``: ``file:///folder`` or ``redis://``."""
    blob_budget_bytes: int
    """``RLHFLESS_BLOB_BUDGET_BYTES``: what one run may keep in Redis; 4 GiB unless set."""
    token: str = field(repr=False)
    """Content of ``RLHFLESS_TOKEN_FILE``: what every caller must present."""
    model_roots: tuple[Path, ...]
    """``RLHFLESS_ROOTS``: folders that paths in a call may lie under, separated by ``:``."""
    allow_hub: bool
    """``RLHFLESS_ALLOW_HUB``: whether a model may be a hub id (``1``). Off, a process never asks the network."""
    instance: str
    """``HOSTNAME``: the pod's name, unique among replicas."""
    revision: str
    """``K_REVISION``, set by Knative."""
    host: str
    """``RLHFLESS_BIND``: address to listen on; all unless set."""
    port: int
    """``PORT``, set by Knative."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "FunctionSettings":
        """Read and check the environment. Raises ``SettingsInvalid`` naming the variable."""
        env = os.environ if environment is None else environment
        return cls(
            stages=_stages(env),
            redis_url=env.get("REDIS_URL", "redis://localhost:6379/0"),
            redis_password=env.get("REDIS_PASSWORD") or None,
            blob_url=env.get("RLHFLESS_BLOB_URL", "redis://"),
            blob_budget_bytes=int(env.get("RLHFLESS_BLOB_BUDGET_BYTES", str(4 * GIB))),
            token=read_token(env),
            model_roots=tuple(Path(root) for root in env.get("RLHFLESS_ROOTS", "/models").split(":") if root),
            allow_hub=env.get("RLHFLESS_ALLOW_HUB", "0") == "1",
            instance=env.get("HOSTNAME") or socket.gethostname(),
            revision=env.get("K_REVISION", "unrevisioned"),
            host=env.get("RLHFLESS_BIND", "0.0.0.0"),
            port=int(env.get("PORT", "8080")),
        )


def _stages(env: Mapping[str, str]) -> tuple[Stage, ...]:
    names = [name.strip() for name in env.get("RLHFLESS_STAGES", "").split(",") if name.strip()]
    if not names:
        raise SettingsInvalid(f"RLHFLESS_STAGES is empty: name the stages to serve, of {', '.join(Stage)}")
    unknown = sorted(set(names) - set(Stage))
    if unknown:
        raise SettingsInvalid(f"RLHFLESS_STAGES names {', '.join(unknown)}: known are {', '.join(Stage)}")
    return tuple(Stage(name) for name in names)


def read_token(env: Mapping[str, str]) -> str:
    """The shared token from the mounted secret. Raises ``SettingsInvalid``."""
    path = env.get("RLHFLESS_TOKEN_FILE")
    if not path:
        raise SettingsInvalid("RLHFLESS_TOKEN_FILE is not set: point it to the file with the shared token")
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise SettingsInvalid(f"RLHFLESS_TOKEN_FILE cannot be read: {error.strerror}") from error
    if len(token) < 16:
        raise SettingsInvalid("the shared token is shorter than 16 characters: make a longer one")
    return token


def process_environment() -> Mapping[str, str]:
    """This process's environment, for children that are given a part of it."""
    return dict(os.environ)
