"""Reads a Knative Service manifest. Pure: text in, ``FunctionManifest`` out.

What is read is honoured. What is not read is listed in ``not_honoured``, so that the platform can name it in one
warning; what would mean something else if it were ignored is refused (``ManifestRefused``).
"""

import json
from collections.abc import Mapping

import yaml

from controller.platforms.local.cluster_defaults import LOCAL, ClusterDefaults
from controller.platforms.local.manifest import ConfigReference, FunctionManifest, Resources
from controller.platforms.local.manifest_section import ManifestRefused, Section
from controller.platforms.local.quantities import parse_duration_s, parse_quantity
from controller.platforms.local.scaling_annotations import PREFIX, AnnotationRefused, parse_scaling
from controller.platforms.local.scaling_spec import ScalingSpec
from controller.platforms.local.traffic import TrafficRefused, TrafficTarget, parse_traffic
from shared.contracts.ids import is_identifier
from shared.contracts.stage import Stage

ENVIRONMENT_ANNOTATION = "rlhfless.dev/environment"
PROGRESS_DEADLINE_ANNOTATION = "serving.knative.dev/progress-deadline"
MAX_TIMEOUT_S = 600
"""Knative's default ``max-revision-timeout-seconds``; its webhook refuses more."""

_DEFAULT_TIMEOUT_S = 300
_MAX_CONTAINER_CONCURRENCY = 1000
_RESERVED_ENV = ("PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION")


def parse_manifest(text: str, *, source: str, cluster: ClusterDefaults = LOCAL) -> FunctionManifest:
    """The function that a manifest file describes, on a cluster with these defaults.

    Raises ``ManifestRefused`` with the file, the field and the reason.
    """
    root = Section(source, "", _only_document(text, source))
    if root.text("apiVersion", "") != "serving.knative.dev/v1" or root.text("kind", "") != "Service":
        raise root.refuse("kind", "must be Service of serving.knative.dev/v1")
    metadata = root.section("metadata")
    name = metadata.text("name")
    if not is_identifier(name):
        raise metadata.refuse("name", f"{name!r} must be lower case letters, digits and dashes, 63 at most")
    service_annotations = metadata.section("annotations")
    for key in service_annotations.remaining():
        if key.startswith(PREFIX):
            raise service_annotations.refuse(key, "Knative refuses it here; it belongs to spec.template.metadata")
    metadata.ignore("labels", "namespace")
    spec = root.section("spec")
    traffic = _read_traffic(spec)
    template = spec.section("template")
    canonical = json.dumps(template.content(), sort_keys=True, default=str)
    scaling_annotations, environment, progress_deadline_s = _read_annotations(template.section("metadata"))
    pod = template.section("spec")
    concurrency = pod.integer("containerConcurrency", 0, at_least=0, at_most=_MAX_CONTAINER_CONCURRENCY)
    scaling = _read_scaling(scaling_annotations, concurrency, cluster, source)
    timeout_s, response_start_timeout_s, idle_timeout_s = _read_timeouts(pod)
    container = _only_container(pod)
    env, references = _read_env(container)
    return FunctionManifest(
        name=name,
        image=container.text("image"),
        command=_read_command(container),
        source=source,
        stages=_stages(name, env, container),
        env=env,
        references=references,
        python_environment=environment,
        scaling=scaling,
        timeout_s=timeout_s,
        response_start_timeout_s=response_start_timeout_s,
        idle_timeout_s=idle_timeout_s,
        progress_deadline_s=progress_deadline_s,
        resources=_read_resources(container.section("resources")),
        readiness_path=_read_readiness_path(container),
        traffic=traffic,
        template=canonical,
        not_honoured=tuple(root.not_taken()),
    )


def _only_document(text: str, source: str) -> object:
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestRefused(source, "the document", f"is not YAML: {error}") from error
    if len(documents) != 1:
        raise ManifestRefused(source, "the document", f"must hold one Service, not {len(documents)} documents")
    return documents[0]


def _read_annotations(metadata: Section) -> tuple[Mapping[str, str], str, float]:
    """Autoscaling annotations without their prefix, the Python environment's name, the progress deadline."""
    metadata.ignore("labels", "creationTimestamp")
    annotations = metadata.section("annotations")
    scaling = {
        key.removeprefix(PREFIX): annotations.text(key) for key in annotations.remaining() if key.startswith(PREFIX)
    }
    environment = annotations.text(ENVIRONMENT_ANNOTATION, "")
    deadline = annotations.text(PROGRESS_DEADLINE_ANNOTATION, "600s")
    try:
        return scaling, environment, parse_duration_s(deadline)
    except ValueError as error:
        raise annotations.refuse(PROGRESS_DEADLINE_ANNOTATION, str(error)) from error


def _read_scaling(
    annotations: Mapping[str, str], concurrency: int, cluster: ClusterDefaults, source: str
) -> ScalingSpec:
    try:
        return parse_scaling(annotations, container_concurrency=concurrency, cluster=cluster)
    except AnnotationRefused as error:
        field = f"spec.template.metadata.annotations.{PREFIX}{error.key}"
        raise ManifestRefused(source, field, error.reason) from error


def _read_traffic(spec: Section) -> tuple[TrafficTarget, ...]:
    try:
        return parse_traffic(spec.take("traffic"))
    except TrafficRefused as error:
        raise spec.refuse(f"traffic{error.field}", error.reason) from error


def _read_timeouts(pod: Section) -> tuple[float, float, float]:
    """Whole request, time to first byte (its default is 300 s at most, as on Knative), and between two pieces."""
    timeout_s = pod.integer("timeoutSeconds", _DEFAULT_TIMEOUT_S, at_least=1, at_most=MAX_TIMEOUT_S)
    default_start_s = min(timeout_s, _DEFAULT_TIMEOUT_S)
    start_s = pod.integer("responseStartTimeoutSeconds", default_start_s, at_least=0, at_most=MAX_TIMEOUT_S)
    return timeout_s, start_s, pod.integer("idleTimeoutSeconds", 0, at_least=0, at_most=timeout_s)


def _only_container(pod: Section) -> Section:
    if pod.take("initContainers") is not None:
        raise pod.refuse("initContainers", "a process on one machine has none")
    containers = pod.sections("containers")
    if len(containers) != 1:
        raise pod.refuse("containers", f"must be one container, not {len(containers)}")
    ports = containers[0].sections("ports")
    if len(ports) > 1:
        raise containers[0].refuse("ports", f"must be one port, not {len(ports)}")
    for port in ports:
        port.ignore("containerPort")
        protocol_name = port.text("name", "http1")
        if protocol_name != "http1":
            raise port.refuse("name", f"only http1 is spoken on one machine, not {protocol_name!r}")
    containers[0].ignore("name", "imagePullPolicy")
    return containers[0]


def _read_command(container: Section) -> tuple[str, ...]:
    command = container.texts("command")
    if not command:
        raise container.refuse("command", "is missing; there is no image here that could name the program")
    return (*command, *container.texts("args"))


def _read_env(container: Section) -> tuple[dict[str, str], dict[str, ConfigReference]]:
    if container.take("envFrom") is not None:
        raise container.refuse("envFrom", "is not resolved on one machine; list the variables under env")
    values: dict[str, str] = {}
    references: dict[str, ConfigReference] = {}
    for entry in container.sections("env"):
        name = entry.text("name")
        if name in _RESERVED_ENV:
            raise entry.refuse("name", f"{name} is set by the platform")
        value_from = entry.section("valueFrom")
        if not value_from.remaining():
            values[name] = entry.text("value", "")
            continue
        [kind, *_] = value_from.remaining()
        if kind not in ("secretKeyRef", "configMapKeyRef"):
            raise value_from.refuse(kind, "only secretKeyRef and configMapKeyRef are resolved on one machine")
        reference = value_from.section(kind)
        references[name] = ConfigReference(
            name=f"{reference.text('name')}/{reference.text('key')}",
            optional=reference.take("optional") is True,
        )
    return values, references


def _stages(name: str, env: Mapping[str, str], container: Section) -> tuple[Stage, ...]:
    """Stages that the function serves: those in ``RLHFLESS_STAGES``, else the one it is named after."""
    known = {stage.value for stage in Stage}
    listed = env.get("RLHFLESS_STAGES")
    if listed is None:
        return (Stage(name),) if name in known else ()
    names = [part.strip() for part in listed.split(",") if part.strip()]
    unknown = [part for part in names if part not in known]
    if unknown:
        raise container.refuse("env.RLHFLESS_STAGES", f"no stage {unknown[0]!r}; there are {', '.join(sorted(known))}")
    return tuple(Stage(part) for part in names)


def _read_resources(resources: Section) -> Resources:
    """Requests; a limit without a request is also the request, as on Kubernetes. Limits are not enforced."""
    requests, limits = resources.section("requests"), resources.section("limits")

    def amount(resource: str) -> float:
        value = requests.take(resource)
        if value is None and resource in limits:
            value = limits.take(resource)
        try:
            return float(parse_quantity(str(value))) if value is not None else 0.0
        except ValueError as error:
            raise requests.refuse(resource, str(error)) from error

    return Resources(num_cpus=amount("cpu"), memory_bytes=int(amount("memory")), num_gpus=int(amount("nvidia.com/gpu")))


def _read_readiness_path(container: Section) -> str | None:
    probe = container.section("readinessProbe")
    for kind in ("exec", "grpc"):
        if kind in probe:
            raise probe.refuse(kind, "only httpGet and tcpSocket are probed on one machine")
    probe.ignore("tcpSocket")
    get = probe.section("httpGet")
    if not get.remaining():
        return None
    get.ignore("port")
    return get.text("path", "/")
