"""Process settings of the controller, from its environment. What a run asks for is its config, not a setting."""

import hashlib
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from shared.store.prefix_kv_settings import PrefixKvSettings

NumberT = TypeVar("NumberT", int, float)
GIB = 2**30
SHARED_MEMORY = Path("/dev/shm")
LARGE_MEMORY_BYTES = 4 * GIB
"""Shared memory from which prefix KV may take its GiB; containers often have 64 MiB."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses that only this machine reaches: there the API needs no token."""
MIN_TOKEN_CHARS = 16
REPOSITORY = Path(__file__).resolve().parent.parent


class SettingsInvalid(Exception):
    """A variable of the environment is missing or wrong."""


FUNCTION_VARIABLES = ("RLHFLESS_REWARD_ALLOWED_HOSTS", "RLHFLESS_SECRETS_DIR", "RLHFLESS_NUM_RANKS")
"""Settings of functions that this machine's controller passes on to them; a manifest has them on a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The machine that the local platform fits its replicas into."""

    num_cpus: float
    """``RLHFLESS_CPUS``: processors that replicas may request together; the machine's unless set."""
    memory_bytes: int
    """``RLHFLESS_MEMORY_BYTES``: memory that they may request together; the machine's unless set."""
    num_gpus: int
    """``RLHFLESS_PRETEND_GPUS``: GPUs that they may request together, as if there were any; for experiments."""
    gpu_devices: tuple[str, ...]
    """``RLHFLESS_GPU_DEVICES``: real GPUs, as ``CUDA_VISIBLE_DEVICES`` names them; those found unless set."""
    python_environments: Mapping[str, str]
    """``RLHFLESS_ENVIRONMENTS``: interpreters by the name that a manifest's ``rlhfless.dev/environment`` has, as
    ``vllm=/opt/vllm/bin/python,...``."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str], *, devices: Path = Path("/dev")) -> "MachineSettings":
        """Read the environment, and the machine. Raises ``SettingsInvalid`` naming the variable."""
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        named = env.get("RLHFLESS_GPU_DEVICES")
        return cls(
            num_cpus=_number(env, "RLHFLESS_CPUS", float(os.cpu_count() or 1), float, least=0.1),
            memory_bytes=_number(env, "RLHFLESS_MEMORY_BYTES", memory_bytes, int, least=1),
            num_gpus=_number(env, "RLHFLESS_PRETEND_GPUS", 0, int, least=0),
            gpu_devices=_gpus(devices) if named is None else tuple(_listed(named)),
            python_environments=_pairs(env, "RLHFLESS_ENVIRONMENTS"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The cluster that the functions run on, and how its API is reached."""

    kubeconfig: Path | None
    """``KUBECONFIG``: the file whose current context is used; unset, the pod's own service account."""
    namespace: str | None
    """``RLHFLESS_NAMESPACE``: the functions' namespace; the service account's or the context's unless set."""
    ingress_url: str
    """``RLHFLESS_INGRESS_URL``: the ingress, for a controller outside the cluster; functions' own URLs unless set."""
    api_host: str | None
    """``KUBERNETES_SERVICE_HOST``, which every pod has."""
    api_port: str
    """``KUBERNETES_SERVICE_PORT``."""
    holder: str
    """``HOSTNAME``: the pod's name, which raised minima carry."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "ClusterSettings":
        """Read the environment. Raises ``SettingsInvalid`` naming the variable."""
        env = os.environ if environment is None else environment
        ingress_url = env.get("RLHFLESS_INGRESS_URL") or ""
        if ingress_url and not ingress_url.startswith(("http://", "https://")):
            raise SettingsInvalid(f"RLHFLESS_INGRESS_URL={ingress_url!r} is not a URL: write it as http://HOST:PORT")
        kubeconfig = env.get("KUBECONFIG")
        if kubeconfig and ":" in kubeconfig:
            raise SettingsInvalid(
                "KUBECONFIG names several files: name one, as 'kubectl config view --flatten' makes it"
            )
        return cls(
            kubeconfig=Path(kubeconfig).expanduser() if kubeconfig else None,
            namespace=env.get("RLHFLESS_NAMESPACE") or None,
            ingress_url=ingress_url,
            api_host=env.get("KUBERNETES_SERVICE_HOST") or None,
            api_port=env.get("KUBERNETES_SERVICE_PORT") or "443",
            holder=env.get("HOSTNAME") or "rlhfless-controller",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """What the controller's process needs to know. Secrets are kept out of ``repr``."""

    state_dir: Path
    """``RLHFLESS_STATE_DIR``: logs, the embedded Redis, blobs and checkpoints; ``.rlhfless`` in the checkout."""
    redis_url: str | None
    """``REDIS_URL``; unset, a Redis of our own is started."""
    redis_password: str | None = field(repr=False)
    """``REDIS_PASSWORD``, if the URL does not carry one."""
    blob_url: str
    """``RLHFLESS_BLOB_URL``; a folder in the state folder unless set."""
    blob_budget_bytes: int
    """``RLHFLESS_BLOB_BUDGET_BYTES``: what one run may keep in Redis."""
    prefix_kv: PrefixKvSettings
    """Where prefix KV is kept. Unless ``RLHFLESS_PREFIX_KV_URL`` is set: on one machine in shared memory, or in
    the state folder where that is small; on a cluster in Redis."""
    roots: tuple[Path, ...]
    """``RLHFLESS_ROOTS``: folders that paths in a run config may lie under, separated by ``:``."""
    allow_hub: bool
    """``RLHFLESS_ALLOW_HUB``: whether a model may be a hub id (``1``)."""
    api_host: str
    """``RLHFLESS_API_HOST``: address of the REST API; loopback unless set."""
    api_port: int
    """``RLHFLESS_API_PORT``; 8765 unless set, 0 takes any free one."""
    api_token_file: Path | None
    """``RLHFLESS_API_TOKEN_FILE``: token that the REST API asks for; none on loopback unless set."""
    admin_token_file: Path | None
    """``RLHFLESS_ADMIN_TOKEN_FILE``: token that may change functions, too. Without it nobody may, where there is a
    token for the API, and everybody may where there is none."""
    cluster: ClusterSettings | None
    """Set where ``RLHFLESS_PLATFORM`` is ``knative``: functions run on a cluster, and not on this machine."""
    token_file: Path | None
    """``RLHFLESS_TOKEN_FILE``: what functions on a cluster ask of their callers. On this machine a token is made."""
    manifests: Path
    """``RLHFLESS_MANIFESTS``: folder of the functions' Knative Services."""
    max_dataset_bytes: int
    """``RLHFLESS_MAX_DATASET_BYTES``: size of one uploaded dataset at most; 1 GiB unless set."""
    call_timeout_s: float
    """``RLHFLESS_CALL_TIMEOUT_S``: the platform's limit on one request; 600, Knative's default maximum. At least 40,
    for 30 of it are kept for the queue and a cold start."""
    num_threads: int
    """``RLHFLESS_THREADS``: compute threads of this machine; its cores unless set."""
    machine: MachineSettings
    function_variables: Mapping[str, str]
    """Those of ``FUNCTION_VARIABLES`` that are set."""
    cpu_hour_usd: float
    """``RLHFLESS_CPU_HOUR_USD``: price of a CPU for an hour; 0.04, about what clouds ask for one on demand."""
    gpu_hour_usd: float
    """``RLHFLESS_GPU_HOUR_USD``: price of a GPU for an hour; 1.95, a serverless L40S in 2025."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "ControllerSettings":
        """Read the environment. Raises ``SettingsInvalid`` naming the variable."""
        env = os.environ if environment is None else environment
        state_dir = Path(env.get("RLHFLESS_STATE_DIR") or REPOSITORY / ".rlhfless").expanduser().absolute()
        token_file = env.get("RLHFLESS_API_TOKEN_FILE")
        api_host = env.get("RLHFLESS_API_HOST") or "127.0.0.1"
        if api_host not in LOOPBACK and not token_file:
            raise SettingsInvalid(
                f"RLHFLESS_API_HOST={api_host} opens the API to other machines: set RLHFLESS_API_TOKEN_FILE to a file "
                "with the token that callers must present"
            )
        admin_token_file, function_token_file = env.get("RLHFLESS_ADMIN_TOKEN_FILE"), env.get("RLHFLESS_TOKEN_FILE")
        if admin_token_file and not token_file:
            raise SettingsInvalid(
                "RLHFLESS_ADMIN_TOKEN_FILE is set, but everybody may do everything: set RLHFLESS_API_TOKEN_FILE too"
            )
        roots = env.get("RLHFLESS_ROOTS") or f"{REPOSITORY}:{state_dir}"
        return cls(
            state_dir=state_dir,
            redis_url=env.get("REDIS_URL") or None,
            redis_password=env.get("REDIS_PASSWORD") or None,
            blob_url=env.get("RLHFLESS_BLOB_URL") or (state_dir / "blobs").as_uri(),
            blob_budget_bytes=_number(env, "RLHFLESS_BLOB_BUDGET_BYTES", 4 * GIB, int, least=1),
            prefix_kv=_prefix_kv(env, state_dir, on_cluster=_cluster(env) is not None),
            roots=tuple(Path(root).absolute() for root in roots.split(":") if root),
            allow_hub=env.get("RLHFLESS_ALLOW_HUB", "0") == "1",
            api_host=api_host,
            api_port=_number(env, "RLHFLESS_API_PORT", 8765, int, least=0),
            api_token_file=Path(token_file) if token_file else None,
            admin_token_file=Path(admin_token_file) if admin_token_file else None,
            cluster=_cluster(env),
            token_file=Path(function_token_file) if function_token_file else None,
            manifests=Path(env.get("RLHFLESS_MANIFESTS") or REPOSITORY / "deploy" / "base" / "functions"),
            max_dataset_bytes=_number(env, "RLHFLESS_MAX_DATASET_BYTES", GIB, int, least=1),
            call_timeout_s=_number(env, "RLHFLESS_CALL_TIMEOUT_S", 600.0, float, least=40.0),
            num_threads=_number(env, "RLHFLESS_THREADS", os.cpu_count() or 1, int, least=1),
            machine=MachineSettings.from_environment(env),
            function_variables={name: env[name] for name in FUNCTION_VARIABLES if env.get(name)},
            cpu_hour_usd=_number(env, "RLHFLESS_CPU_HOUR_USD", 0.04, float, least=0.0),
            gpu_hour_usd=_number(env, "RLHFLESS_GPU_HOUR_USD", 1.95, float, least=0.0),
        )

    @property
    def checkpoint_root(self) -> Path:
        """Where runs that name no folder put their checkpoints."""
        return self.state_dir / "checkpoints"

    @property
    def own_memory(self) -> Path | None:
        """The folder in shared memory that holds this stack's prefix KV and nothing else; ``None`` where it is
        elsewhere."""
        folder = _own_memory(self.state_dir)
        return folder if self.prefix_kv.url == folder.as_uri() else None

    @property
    def dataset_root(self) -> Path:
        """Where uploaded datasets are kept."""
        return self.state_dir / "datasets"

    @property
    def address_file(self) -> Path:
        """Where a running controller leaves its address for the command line."""
        return self.state_dir / "controller.json"


def _own_memory(state_dir: Path) -> Path:
    """A folder in shared memory of this user and this stack: two stacks know nothing of each other's runs."""
    return SHARED_MEMORY / f"rlhfless-{os.getuid()}-{hashlib.sha256(str(state_dir).encode()).hexdigest()[:12]}"


def _prefix_kv(env: Mapping[str, str], state_dir: Path, *, on_cluster: bool) -> PrefixKvSettings:
    """Where prefix KV is kept. Raises ``SettingsInvalid``."""
    if on_cluster:
        default_url = "redis://"
    elif SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).total >= LARGE_MEMORY_BYTES:
        default_url = _own_memory(state_dir).as_uri()
    else:
        default_url = (state_dir / "prefix-kv").as_uri()
    try:
        return PrefixKvSettings.from_environment(env, default_url=default_url)
    except ValueError as error:
        raise SettingsInvalid(str(error)) from None


def _number(env: Mapping[str, str], name: str, default: NumberT, kind: type[NumberT], *, least: NumberT) -> NumberT:
    text = env.get(name)
    if not text:
        return default
    try:
        value = kind(text)
    except ValueError as error:
        raise SettingsInvalid(f"{name}={text!r} is not a number") from error
    if not least <= value < math.inf:
        raise SettingsInvalid(f"{name}={text!r} is out of range: use at least {least}")
    return value


def _cluster(env: Mapping[str, str]) -> ClusterSettings | None:
    """The cluster, where functions run on one. Raises ``SettingsInvalid`` where something that it needs is missing."""
    platform = env.get("RLHFLESS_PLATFORM") or "local"
    if platform not in ("local", "knative"):
        raise SettingsInvalid(f"RLHFLESS_PLATFORM={platform!r}: use local (this machine) or knative (a cluster)")
    if platform == "local":
        return None
    for name, what in (
        ("REDIS_URL", "the Redis that the functions use"),
        ("RLHFLESS_TOKEN_FILE", "the file with the token that the functions ask for"),
        ("RLHFLESS_BLOB_URL", "where the functions keep weights, such as redis://"),
    ):
        if not env.get(name):
            raise SettingsInvalid(f"{name} is not set: on a cluster it says {what}")
    return ClusterSettings.from_environment(env)


def read_token_file(path: Path, variable: str) -> str:
    """The token in a file. Raises ``SettingsInvalid`` where there is none: an empty one would open every door."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        # Without the error itself: one of decoding quotes the content.
        raise SettingsInvalid(f"{variable}: {path} cannot be read: {why}") from None
    if len(token) < MIN_TOKEN_CHARS or not all("!" <= char <= "~" for char in token):
        raise SettingsInvalid(
            f"{variable}: {path} holds no token: put {MIN_TOKEN_CHARS} printable characters or more in it, no spaces"
        )
    return token


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pairs(env: Mapping[str, str], name: str) -> dict[str, str]:
    pairs = {}
    for entry in _listed(env.get(name, "")):
        key, _, value = entry.partition("=")
        if not key or not value:
            raise SettingsInvalid(f"{name} has {entry!r}: write NAME=INTERPRETER, separated by commas")
        pairs[key] = value
    return pairs


def _gpus(devices: Path) -> tuple[str, ...]:
    """Numbers of the NVIDIA GPUs whose device files are there, in order."""
    numbers = [path.name.removeprefix("nvidia") for path in devices.glob("nvidia[0-9]*")]
    return tuple(sorted((number for number in numbers if number.isdecimal()), key=int))


def function_environment() -> dict[str, str]:
    """What functions on this machine inherit of the environment: how to find programs, and nothing secret."""
    wanted = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "HF_HOME", "HF_HUB_OFFLINE")
    inherited = {name: os.environ[name] for name in wanted if name in os.environ}
    return {**inherited, "PYTHONPATH": str(REPOSITORY)}
