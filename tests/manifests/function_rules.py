"""What Knative refuses or misunderstands in a Service, and no schema says.

Source: knative/serving 1.23, ``pkg/apis/serving`` (webhooks), ``pkg/apis/autoscaling`` (annotations).
"""

from collections.abc import Callable, Iterator

from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.local.quantities import parse_duration_s
from controller.platforms.local.scaling_annotations import PREFIX, AnnotationRefused, parse_scaling
from controller.platforms.local.traffic import TrafficRefused, parse_traffic
from shared.contracts.stage import Stage
from tests.manifests.tree import Document

PROGRESS_DEADLINE = "serving.knative.dev/progress-deadline"
TEMPLATE_ANNOTATIONS = {PROGRESS_DEADLINE, "features.knative.dev/http-full-duplex", "rlhfless.dev/environment"}
RESERVED_VARIABLES = {"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}
RESERVED_PORTS = {8008, 8012, 8013, 8022, 8112, 9090, 9091}
RESERVED_MOUNTS = {"/", "/dev", "/dev/log"}
COMPUTING = {Stage.PREFILL, Stage.ROLLOUT, Stage.REFERENCE, Stage.CRITIC, Stage.LEARNER}

Rule = Callable[[Document], Iterator[str]]


def function_problems(service: Document) -> Iterator[str]:
    """What is wrong with a Knative Service whose schema is right."""
    for rule in RULES:
        yield from (f"{service['metadata']['name']}: {problem}" for problem in rule(service))


def stages(service: Document) -> list[Stage]:
    """The stages that it serves."""
    listed = {entry["name"]: entry.get("value", "") for entry in container(service).get("env", ())}
    return [Stage(name) for name in listed.get("RLHFLESS_STAGES", "").split(",") if name]


def container(service: Document) -> Document:
    """Its first container."""
    return dict(_pod(service)["containers"][0])


def _pod(service: Document) -> Document:
    return dict(service["spec"]["template"]["spec"])


def _template_annotations(service: Document) -> dict[str, str]:
    return dict(service["spec"]["template"].get("metadata", {}).get("annotations", {}))


def is_only_reached_from_within(service: Document) -> Iterator[str]:
    if service["metadata"].get("labels", {}).get("networking.knative.dev/visibility") != "cluster-local":
        yield "has no label networking.knative.dev/visibility: cluster-local, so it is open to the world"


def has_its_scaling_in_the_template(service: Document) -> Iterator[str]:
    for key in service["metadata"].get("annotations", {}):
        if key.startswith(PREFIX):
            yield f"{key} is refused on the Service itself: it belongs to spec.template.metadata"


def has_annotations_that_are_known(service: Document) -> Iterator[str]:
    annotations = _template_annotations(service)
    for key in annotations:
        if not key.startswith(PREFIX) and key not in TEMPLATE_ANNOTATIONS:
            yield f"{key} is no annotation of a template that is known, and Knative would drop it silently"
    scaling = {key.removeprefix(PREFIX): text for key, text in annotations.items() if key.startswith(PREFIX)}
    concurrency = _pod(service).get("containerConcurrency", 0)
    try:
        parse_scaling(scaling, container_concurrency=concurrency, cluster=KNATIVE)
    except AnnotationRefused as error:
        yield str(error)


def waits_for_image_and_model(service: Document) -> Iterator[str]:
    text = _template_annotations(service).get(PROGRESS_DEADLINE, "600s")
    try:
        deadline_s = parse_duration_s(text)
    except ValueError as error:
        yield f"{PROGRESS_DEADLINE}: {error}"
        return
    if deadline_s < 900:
        yield f"{PROGRESS_DEADLINE} is {text}: pulling an image and loading a model may take 15 minutes"


def has_both_timeouts(service: Document) -> Iterator[str]:
    pod = _pod(service)
    whole_s, start_s = pod.get("timeoutSeconds"), pod.get("responseStartTimeoutSeconds")
    if whole_s is None or whole_s != start_s:
        yield f"timeoutSeconds is {whole_s} and responseStartTimeoutSeconds {start_s}: they have to be the same"


def is_scaled_by_its_calls(service: Document) -> Iterator[str]:
    """One call at a time where a GPU computes, and as many replicas as calls."""
    concurrency, annotations = _pod(service).get("containerConcurrency", 0), _template_annotations(service)
    if concurrency == 0:
        yield "containerConcurrency is missing: a replica would get any number of calls"
    if COMPUTING & set(stages(service)) and concurrency != 1:
        yield f"containerConcurrency is {concurrency}: a replica that computes takes one call at a time"
    wanted = {"min-scale": "0", "target-utilization-percentage": "100", "target-burst-capacity": "-1"}
    for key, value in wanted.items():
        found = annotations.get(f"{PREFIX}{key}")
        if found != value:
            yield f"{PREFIX}{key} is {found}, not {value}"
    for key in ("window", "max-scale"):
        if f"{PREFIX}{key}" not in annotations:
            yield f"{PREFIX}{key} is missing"


def has_one_port(service: Document) -> Iterator[str]:
    ports = [port for found in _pod(service)["containers"] for port in found.get("ports", ())]
    if len(ports) != 1:
        yield f"has {len(ports)} ports: Knative takes exactly one"
    for port in ports:
        if port["containerPort"] in RESERVED_PORTS:
            yield f"port {port['containerPort']} is the queue-proxy's"


def has_an_image_that_stays(service: Document) -> Iterator[str]:
    for found in _pod(service)["containers"]:
        image = found.get("image", "")
        name, _, tag = image.rpartition("/")[2].partition(":")
        if not name or not (tag or "@" in image) or tag == "latest":
            yield f"image {image!r} has neither a version nor a digest"


def sets_its_variables_once(service: Document) -> Iterator[str]:
    for found in _pod(service)["containers"]:
        names = [entry["name"] for entry in found.get("env", ())]
        for name in sorted(set(names)):
            if name in RESERVED_VARIABLES:
                yield f"{name} is Knative's to set"
            if names.count(name) > 1:
                yield f"{name} is set more than once"
        for entry in found.get("env", ()):
            if entry.get("valueFrom", {}).get("configMapKeyRef"):
                yield f"{entry['name']} comes from a ConfigMap, whose change makes no new revision"
        if found.get("envFrom"):
            yield "envFrom hides which variables there are"


def mounts_what_it_has(service: Document) -> Iterator[str]:
    pod = _pod(service)
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    mounts = {mount["mountPath"]: mount for found in pod["containers"] for mount in found.get("volumeMounts", ())}
    mounted = {mount["name"] for mount in mounts.values()}
    for name in sorted(mounted ^ volumes.keys()):
        yield f"volume {name} is {'mounted but not there' if name in mounted else 'there but not mounted'}"
    for path, mount in mounts.items():
        if path in RESERVED_MOUNTS:
            yield f"{path} may not be a mount"
        if "secret" in volumes.get(mount["name"], {}) and not mount.get("readOnly"):
            yield f"{path} is a Secret and not read-only"
    shm = volumes.get(mounts.get("/dev/shm", {}).get("name", ""), {})
    if shm.get("emptyDir", {}).get("medium") != "Memory" or "sizeLimit" not in shm.get("emptyDir", {}):
        yield "/dev/shm is no memory of a bounded size"
    if "/tmp" not in mounts:
        yield "/tmp cannot be written"


def is_ready_when_it_says_so(service: Document) -> Iterator[str]:
    probe = container(service).get("readinessProbe", {})
    if probe.get("httpGet", {}).get("path") != "/readyz":
        yield "is not asked at /readyz whether it is ready"
    for key in ("timeoutSeconds", "failureThreshold"):
        if key in probe and not probe.get("periodSeconds"):
            yield f"readinessProbe.{key} is refused without periodSeconds: Knative then probes at its own pace"
    for kind in ("livenessProbe", "startupProbe"):
        if kind in container(service):
            yield f"{kind}: the kubelet would end a replica that computes, or wait for its own rounds"


def has_no_account(service: Document) -> Iterator[str]:
    if _pod(service).get("automountServiceAccountToken") is not False:
        yield "automountServiceAccountToken is not false: a function has nothing to ask the Kubernetes API"


def sends_all_requests_somewhere(service: Document) -> Iterator[str]:
    try:
        parse_traffic(service["spec"].get("traffic"))
    except TrafficRefused as error:
        yield f"traffic: {error}"


def is_labelled_for_its_policies(service: Document) -> Iterator[str]:
    labels = service["spec"]["template"].get("metadata", {}).get("labels", {})
    if labels.get("app.kubernetes.io/component") != "function":
        yield "its pods have no label app.kubernetes.io/component: function, which the NetworkPolicies go by"


RULES: tuple[Rule, ...] = (
    is_only_reached_from_within,
    has_its_scaling_in_the_template,
    has_annotations_that_are_known,
    waits_for_image_and_model,
    has_both_timeouts,
    is_scaled_by_its_calls,
    has_one_port,
    has_an_image_that_stays,
    sets_its_variables_once,
    mounts_what_it_has,
    is_ready_when_it_says_so,
    has_no_account,
    sends_all_requests_somewhere,
    is_labelled_for_its_policies,
)
