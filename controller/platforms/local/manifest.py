"""One function as its Knative Service manifest describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.platforms.local.scaling_spec import ScalingSpec
from controller.platforms.local.traffic import ALL_TO_LATEST, TrafficTarget
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one replica asks of the machine. Zero: it takes what is there."""

    num_cpus: float = 0.0
    memory_bytes: int = 0
    num_gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReference:
    """A value that a cluster takes from a Secret or ConfigMap."""

    name: str
    """``object/key``"""
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionManifest:
    """What to run and how to scale it. ``manifest_parser.parse_manifest`` makes it from a file."""

    name: str
    image: str
    command: tuple[str, ...]
    """Command and arguments."""
    source: str = ""
    """File it was read from, for messages."""
    stages: tuple[Stage, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, ConfigReference] = field(default_factory=dict)
    """Variables whose values the manifest does not hold."""
    python_environment: str = ""
    """Name of the Python environment it runs in. Empty: the controller's own."""
    scaling: ScalingSpec = field(default_factory=ScalingSpec)
    timeout_s: float = 300.0
    """Longest time of a request from its arrival; also the longest drain of a replica."""
    response_start_timeout_s: float = 300.0
    """Longest time from a request's arrival to the first byte of its answer. 0: no limit of its own."""
    idle_timeout_s: float = 0.0
    """Longest time without a byte of the answer. 0: no limit."""
    progress_deadline_s: float = 600.0
    """How long a replica may take to become ready."""
    resources: Resources = field(default_factory=Resources)
    readiness_path: str | None = None
    """GET path of the readiness probe. None: ready as soon as the port is open."""
    traffic: tuple[TrafficTarget, ...] = ALL_TO_LATEST
    """Which revisions requests go to."""
    template: str = ""
    """The template in canonical form: another text is another revision."""
    not_honoured: tuple[str, ...] = ()
    """Paths of the fields that have no effect on one machine."""

    @property
    def container_concurrency(self) -> int:
        """Requests that one replica gets at a time. 0: any number."""
        return self.scaling.container_concurrency
