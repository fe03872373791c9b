"""A Knative Service as far as these manifests use it: typed, and strict where Knative's own schema is blind.

Source: knative/serving 1.23, ``pkg/apis/serving/fieldmask.go``. Fields behind a feature flag are here, too;
``feature_flags`` says which flag each needs.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

Text = Annotated[str, StringConstraints(min_length=1)]
Texts = dict[Text, str]
Seconds = Annotated[int, Field(ge=0)]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")] | int


class Strict(BaseModel):
    """No unknown field, and no value of another type: what the API server refuses or, worse, drops."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(Strict):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]
    namespace: Text | None = None
    labels: Texts = {}
    annotations: Texts = {}


class KeyReference(Strict):
    name: Text
    key: Text
    optional: bool = False


class ValueFrom(Strict):
    secret_key_ref: KeyReference | None = None
    config_map_key_ref: KeyReference | None = None
    field_ref: dict[str, str] | None = None


class Variable(Strict):
    name: Text
    value: str | None = None
    value_from: ValueFrom | None = None


class Port(Strict):
    container_port: Annotated[int, Field(ge=1, le=65535)]
    name: Literal["", "http1", "h2c"] = ""
    protocol: Literal["TCP"] = "TCP"


class Resources(Strict):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class HttpGet(Strict):
    path: Text
    port: int | str | None = None
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"


class Exec(Strict):
    command: list[str]


class Probe(Strict):
    http_get: HttpGet | None = None
    tcp_socket: dict[str, Any] | None = None
    exec: Exec | None = None
    initial_delay_seconds: Seconds | None = None
    period_seconds: Seconds | None = None
    timeout_seconds: Seconds | None = None
    success_threshold: Seconds | None = None
    failure_threshold: Seconds | None = None


class Capabilities(Strict):
    drop: list[str] = []
    add: list[str] = []


class SeccompProfile(Strict):
    type: Literal["RuntimeDefault", "Localhost", "Unconfined"]


class SecurityContext(Strict):
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    privileged: Literal[False] = False
    read_only_root_filesystem: bool | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    run_as_user: int | None = None
    seccomp_profile: SeccompProfile | None = None


class Mount(Strict):
    name: Text
    mount_path: Text
    read_only: bool = False
    sub_path: str = ""


class Container(Strict):
    image: Text
    name: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[Variable] = []
    ports: list[Port] = []
    resources: Resources = Resources()
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None
    security_context: SecurityContext | None = None
    volume_mounts: list[Mount] = []
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None


class Item(Strict):
    key: Text
    path: Text
    mode: int | None = None


class SecretVolume(Strict):
    secret_name: Text
    items: list[Item] = []
    optional: bool = False
    default_mode: int | None = None


class EmptyDir(Strict):
    medium: Literal["", "Memory"] = ""
    size_limit: Quantity | None = None


class ClaimVolume(Strict):
    claim_name: Text
    read_only: bool = False


class Volume(Strict):
    name: Text
    secret: SecretVolume | None = None
    empty_dir: EmptyDir | None = None
    persistent_volume_claim: ClaimVolume | None = None


class Toleration(Strict):
    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class RevisionSpec(Strict):
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume] = []
    container_concurrency: Annotated[int, Field(ge=0, le=1000)] = 0
    timeout_seconds: Seconds | None = None
    response_start_timeout_seconds: Seconds | None = None
    idle_timeout_seconds: Seconds | None = None
    service_account_name: str = ""
    automount_service_account_token: Literal[False] | None = None
    enable_service_links: bool | None = None
    image_pull_secrets: list[dict[Literal["name"], Text]] = []
    node_selector: Texts = {}
    tolerations: list[Toleration] = []
    runtime_class_name: str = ""
    priority_class_name: str = ""


class TemplateMetadata(Strict):
    name: str = ""
    labels: Texts = {}
    annotations: Texts = {}


class Template(Strict):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: RevisionSpec


class Traffic(Strict):
    revision_name: Text | None = None
    latest_revision: bool | None = None
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    tag: str = ""


class ServiceSpec(Strict):
    template: Template
    traffic: list[Traffic] = []


class KnativeService(Strict):
    """``Service`` of ``serving.knative.dev/v1``."""

    api_version: Literal["serving.knative.dev/v1"]
    kind: Literal["Service"]
    metadata: Metadata
    spec: ServiceSpec
