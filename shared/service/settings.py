"""Process settings of a function, from its environment. Nothing else reads the environment."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.contracts.stage import Stage
from shared.store.prefix_kv_settings import PrefixKvSettings

GIB = 2**30
MIN_TOKEN_CHARS = 16
MAX_PORT = 65535
MULTI_NODE_VARIABLES = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK")
"""What torchrun, and operators that imitate it, tell the processes that they start."""


class SettingsInvalid(Exception):
    """A variable of the environment is missing or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSettings:
    """What a function's process needs to know. Secrets, and what may hold one, are kept out of ``repr``."""

    stages: tuple[Stage, ...]
    """``RLHFLESS_STAGES``: the stages served by this process, usually one."""
    redis_url: str = field(repr=False)
    """``REDIS_URL``."""
    redis_password: str | None = field(repr=False)
    """``REDIS_PASSWORD``, if the URL does not carry one."""
    prefix_kv: PrefixKvSettings
    """Where prefix KV is kept."""
    blob_url: str = field(repr=False)
    """``RLHFLESS_BLOB_URL``: ``file:///folder``, ``redis://``, or an object store such as ``s3://bucket/folder``."""
    blob_budget_bytes: int
    """``RLHFLESS_BLOB_BUDGET_BYTES``: what one run may keep in Redis; 4 GiB unless set."""
    token: str = field(repr=False)
    """Content of ``RLHFLESS_TOKEN_FILE``: what every caller must present."""
    model_roots: tuple[Path, ...]
    """``RLHFLESS_ROOTS``: folders that paths in a call may lie under, separated by ``:``."""
    model: Path | None
    """``RLHFLESS_MODEL``: folder of the model that this image carries and announces; none unless set."""
    allow_hub: bool
    """``RLHFLESS_ALLOW_HUB``: whether a model may be a hub id (``1``). Off, a process never asks the network."""
    reward_allowed_hosts: tuple[str, ...]
    """``RLHFLESS_REWARD_ALLOWED_HOSTS``: hosts and networks that remote rewards may be asked at, separated by commas;
    none unless set."""
    secrets_folder: Path
    """``RLHFLESS_SECRETS_DIR``: folder of mounted secrets, one file each, that a call may name."""
    num_ranks: int | None
    """``RLHFLESS_NUM_RANKS``: processes that make a learner's updates together; ``None``, unless set, for one per GPU
    that is visible."""
    deterministic: bool
    """``RLHFLESS_DETERMINISTIC``: whether a learner on GPUs computes the same bits again (``1``), at some cost."""
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
        _refuse_several_nodes(env)
        try:
            prefix_kv = PrefixKvSettings.from_environment(env)
        except ValueError as error:
            raise SettingsInvalid(str(error)) from None
        return cls(
            stages=_stages(env),
            redis_url=env.get("REDIS_URL") or "redis://localhost:6379/0",
            redis_password=env.get("REDIS_PASSWORD") or None,
            prefix_kv=prefix_kv,
            blob_url=env.get("RLHFLESS_BLOB_URL") or "redis://",
            blob_budget_bytes=_whole_number(env, "RLHFLESS_BLOB_BUDGET_BYTES", 4 * GIB),
            token=read_token(env),
            model_roots=_roots(env),
            model=Path(env["RLHFLESS_MODEL"]) if env.get("RLHFLESS_MODEL") else None,
            allow_hub=_switch(env, "RLHFLESS_ALLOW_HUB"),
            reward_allowed_hosts=_listed(env.get("RLHFLESS_REWARD_ALLOWED_HOSTS", "")),
            secrets_folder=Path(env.get("RLHFLESS_SECRETS_DIR") or "/var/run/secrets/rlhfless-rewards"),
            num_ranks=_whole_number(env, "RLHFLESS_NUM_RANKS", 1) if env.get("RLHFLESS_NUM_RANKS") else None,
            deterministic=_switch(env, "RLHFLESS_DETERMINISTIC"),
            instance=env.get("HOSTNAME") or socket.gethostname(),
            revision=env.get("K_REVISION") or "unrevisioned",
            host=env.get("RLHFLESS_BIND") or "0.0.0.0",
            port=_whole_number(env, "PORT", 8080, largest=MAX_PORT),
        )


def _refuse_several_nodes(env: Mapping[str, str]) -> None:
    """Raises ``SettingsInvalid`` where somebody starts this process as a part of something larger."""
    part_of = [name for name in MULTI_NODE_VARIABLES if env.get(name)]
    if env.get("RLHFLESS_NUM_NODES", "1") not in ("", "1"):
        part_of.append("RLHFLESS_NUM_NODES")
    if part_of:
        raise SettingsInvalid(
            f"{part_of[0]} is set: a replica is one pod, for pods behind the activator cannot find each other; give it "
            "more GPUs (RLHFLESS_NUM_RANKS), and start python -m functions.main without torchrun"
        )


def read_token(env: Mapping[str, str]) -> str:
    """The shared token from the mounted secret. Raises ``SettingsInvalid``."""
    path = env.get("RLHFLESS_TOKEN_FILE")
    if not path:
        raise SettingsInvalid("RLHFLESS_TOKEN_FILE is not set: point it to the file with the shared token")
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        # Without the error itself: one of decoding quotes the content.
        raise SettingsInvalid(f"RLHFLESS_TOKEN_FILE cannot be read: {why}") from None
    if len(token) < MIN_TOKEN_CHARS or not re.fullmatch(r"[!-~]+", token):
        raise SettingsInvalid(
            f"RLHFLESS_TOKEN_FILE holds no token: put {MIN_TOKEN_CHARS} printable characters or more in it, no spaces"
        )
    return token


def process_environment() -> Mapping[str, str]:
    """This process's environment, for children that are given a part of it."""
    return dict(os.environ)


def _stages(env: Mapping[str, str]) -> tuple[Stage, ...]:
    names = [name.strip() for name in env.get("RLHFLESS_STAGES", "").split(",") if name.strip()]
    if not names:
        raise SettingsInvalid(f"RLHFLESS_STAGES is empty: name the stages to serve, of {', '.join(Stage)}")
    unknown = sorted(set(names) - set(Stage))
    if unknown:
        raise SettingsInvalid(f"RLHFLESS_STAGES names {', '.join(unknown)}: known are {', '.join(Stage)}")
    if len(set(names)) < len(names):
        raise SettingsInvalid(f"RLHFLESS_STAGES names a stage twice: {', '.join(names)}")
    return tuple(Stage(name) for name in names)


def _listed(value: str) -> tuple[str, ...]:
    return tuple(entry.strip() for entry in value.split(",") if entry.strip())


def _roots(env: Mapping[str, str]) -> tuple[Path, ...]:
    roots = tuple(Path(root) for root in (env.get("RLHFLESS_ROOTS") or "/models").split(":") if root)
    relative = [str(root) for root in roots if not root.is_absolute()]
    if relative:
        raise SettingsInvalid(f"RLHFLESS_ROOTS has relative paths: {', '.join(relative)}")
    return roots


def _switch(env: Mapping[str, str], name: str) -> bool:
    value = env.get(name) or "0"
    if value not in ("0", "1"):
        raise SettingsInvalid(f"{name} is {value!r}: set it to 1 (on) or 0 (off)")
    return value == "1"


def _whole_number(env: Mapping[str, str], name: str, default: int, *, largest: int = 2**63 - 1) -> int:
    value = env.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,19}", value) or not 1 <= int(value) <= largest:
        raise SettingsInvalid(f"{name} is {value!r}: set it to a whole number from 1 to {largest}")
    return int(value)
