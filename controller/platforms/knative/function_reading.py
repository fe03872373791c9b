"""What a Knative Service and its Revisions say of a function. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from controller.platforms.base import FunctionState, RevisionState
from controller.platforms.knative.conditions import Condition, condition
from controller.platforms.knative.kube_resources import KubeObject, annotations_of, labels_of, name_of
from controller.platforms.knative.pod_reading import REVISION_LABEL, is_active, is_ready, trouble
from controller.platforms.knative.times import duration_s
from shared.contracts.stage import Stage

SCALING = "autoscaling.knative.dev/"
MIN_SCALE = f"{SCALING}min-scale"
MAX_SCALE = f"{SCALING}max-scale"
WINDOW = f"{SCALING}window"
DEFAULT_WINDOW_S = 60.0
ROUTED_TO = "rlhfless.dev/routed-to"
"""On a Service: the revision that the controller has named in its traffic."""
GENERATION_LABEL = "serving.knative.dev/configurationGeneration"


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionLimits:
    """What a revision's own object says of its scale. 0: no limit."""

    name: str
    min_scale: int
    max_scale: int
    container_concurrency: int
    window_s: float
    """Seconds that the autoscaler averages over."""


def stages_of(service: KubeObject) -> tuple[Stage, ...]:
    """Stages that a Service serves: those in ``RLHFLESS_STAGES``, else the one it is named after; none of others."""
    known = {stage.value for stage in Stage}
    for entry in container_of(service).get("env") or ():
        if entry.get("name") == "RLHFLESS_STAGES":
            named = [part.strip() for part in str(entry.get("value") or "").split(",")]
            return tuple(Stage(part) for part in named if part in known)
    return (Stage(name_of(service)),) if name_of(service) in known else ()


def container_of(service: KubeObject) -> dict[str, Any]:
    """The container that serves: the one with a port, where there are several."""
    containers = service["spec"].get("template", {}).get("spec", {}).get("containers") or [{}]
    return dict(next((found for found in containers if found.get("ports")), containers[0]))


def main_revision(service: KubeObject) -> str:
    """Name of the revision that gets most of the requests; the latest one before the first is ready."""
    status = service.get("status") or {}
    latest = status.get("latestReadyRevisionName") or status.get("latestCreatedRevisionName")
    return asked_revision(service) or str(latest or "")


def asked_revision(service: KubeObject) -> str:
    """Name of the revision that gets most of the requests; empty where none does, for none has ever been ready."""
    shares: dict[str, int] = {}
    for target in (service.get("status") or {}).get("traffic") or ():
        name = target.get("revisionName", "")
        shares[name] = shares.get(name, 0) + int(target.get("percent") or 0)
    # The newest of equals comes last by name: names end in a count.
    return max(sorted(shares), key=lambda name: shares[name], default="")


def is_pinned(service: KubeObject) -> bool:
    """Whether somebody else than the controller has named a revision in the traffic, as to go back to an older one."""
    named = {
        target["revisionName"]
        for target in service["spec"].get("traffic") or ()
        if target.get("revisionName") and target.get("percent")
    }
    return bool(named - {annotations_of(service).get(ROUTED_TO)})


def asks(service: KubeObject, revision: str) -> bool:
    """Whether requests go to the revision by now. The status names it before the ingress has followed; it names none
    while no revision has ever been ready."""
    if not asked_revision(service):
        return main_revision(service) == revision
    return asked_revision(service) == revision and _routes(service).status == "True"


def limits_of(revision: KubeObject) -> RevisionLimits:
    """The scale that the revision's annotations ask for; what is not a number counts as not said."""
    annotations = annotations_of(revision)
    return RevisionLimits(
        name=name_of(revision),
        min_scale=_whole(annotations.get(MIN_SCALE)),
        max_scale=_whole(annotations.get(MAX_SCALE)),
        container_concurrency=_whole(revision["spec"].get("containerConcurrency")),
        window_s=duration_s(annotations.get(WINDOW, ""), default=DEFAULT_WINDOW_S),
    )


def address_of(service: KubeObject) -> str:
    """URL at which the Service is called from within the cluster; empty before it has one."""
    status = service.get("status") or {}
    return str((status.get("address") or {}).get("url") or status.get("url") or "")


def host_of(service: KubeObject) -> str:
    """Host by which an ingress knows the Service; empty before it has one."""
    url = str((service.get("status") or {}).get("url") or address_of(service))
    return url.partition("://")[2].partition("/")[0]


def read_function(
    service: KubeObject, revisions: Sequence[KubeObject], pods: Iterable[KubeObject], *, num_calls: int
) -> FunctionState:
    """The function as its objects show it now. ``num_calls``: requests that this controller has sent and that last."""
    main = main_revision(service)
    active = [pod for pod in pods if is_active(pod)]
    num_ready = sum(is_ready(pod) for pod in active)
    limits = next((limits_of(revision) for revision in revisions if name_of(revision) == main), None)
    slots = num_ready * (limits.container_concurrency or num_calls) if limits is not None else num_ready
    reason = _reason(service, revisions, active, main)
    return FunctionState(
        name=name_of(service),
        stages=stages_of(service),
        url=address_of(service),
        revision=main,
        image=_image(service, revisions, main),
        ready=_routes(service).status == "True" and not reason,
        reason=reason,
        num_replicas=len(active),
        num_ready=num_ready,
        num_pending=sum(condition(pod, "PodScheduled").status != "True" for pod in active),
        num_in_flight=min(num_calls, slots),
        num_queued=max(0, num_calls - slots),
        min_scale=limits.min_scale if limits is not None else 0,
        max_scale=limits.max_scale if limits is not None else 0,
        revisions=tuple(_revision_states(service, revisions, active)),
        pinned=is_pinned(service),
    )


def _revision_states(
    service: KubeObject, revisions: Iterable[KubeObject], active: Sequence[KubeObject]
) -> Iterable[RevisionState]:
    targets = (service.get("status") or {}).get("traffic") or ()
    for revision in sorted(revisions, key=_age):
        name, ready = name_of(revision), condition(revision, "Ready")
        mine = [target for target in targets if target.get("revisionName") == name]
        yield RevisionState(
            name=name,
            percent=sum(int(target.get("percent") or 0) for target in mine),
            tags=tuple(str(target["tag"]) for target in mine if target.get("tag")),
            ready=ready.status == "True",
            reason=ready.text if ready.status == "False" else "",
            num_replicas=sum(labels_of(pod).get(REVISION_LABEL) == name for pod in active),
        )


def _reason(service: KubeObject, revisions: Sequence[KubeObject], active: Sequence[KubeObject], main: str) -> str:
    """Why it cannot serve: a pod's trouble says more than a condition that follows from it; empty while it can."""
    troubles = [trouble(pod) for pod in active if labels_of(pod).get(REVISION_LABEL, main) == main]
    told = next((text for text in troubles if text), "")
    if told:
        return told
    for revision in revisions:
        ready = condition(revision, "Ready")
        if name_of(revision) == main and ready.status == "False":
            return ready.text or "its revision is not ready"
    ready = _routes(service)
    if ready.status == "True":
        return ""
    return ready.text or "Knative has not made it ready yet"


def _routes(service: KubeObject) -> Condition:
    """Whether requests reach it. The Service as a whole is not ready either while a revision that gets none fails."""
    said = {entry.get("type") for entry in (service.get("status") or {}).get("conditions") or ()}
    return condition(service, "RoutesReady" if "RoutesReady" in said else "Ready")


def _image(service: KubeObject, revisions: Iterable[KubeObject], main: str) -> str:
    """The main revision's image, which the template's is not while a newer revision gets no requests."""
    for revision in revisions:
        if name_of(revision) == main:
            containers = revision["spec"].get("containers") or [{}]
            serving = next((found for found in containers if found.get("ports")), containers[0])
            if serving.get("image"):
                return str(serving["image"])
    return str(container_of(service).get("image") or "")


def _age(revision: KubeObject) -> tuple[int, str]:
    """Counts the Service's templates; names do not where a template names its revision itself."""
    return _whole(labels_of(revision).get(GENERATION_LABEL)), name_of(revision)


def _whole(value: object) -> int:
    text = str(value)
    return int(text) if text.isdecimal() else 0
