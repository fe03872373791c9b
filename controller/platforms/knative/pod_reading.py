"""A pod's life and troubles, read from its object. Pure."""

from controller.platforms.base import ReplicaLife
from controller.platforms.knative.conditions import condition
from controller.platforms.knative.kube_resources import KubeObject, annotations_of, labels_of, name_of
from controller.platforms.knative.times import from_text
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

SERVICE_LABEL = "serving.knative.dev/service"
REVISION_LABEL = "serving.knative.dev/revision"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
FINISHED_COST = "-100"
"""Of a pod that has no more to do: a ReplicaSet takes it before the others (whose cost is 0)."""

TROUBLES = frozenset(
    {
        "CrashLoopBackOff",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons for which a container waits that do not pass by themselves."""


def pod_life(
    pod: KubeObject,
    stages: tuple[Stage, ...],
    *,
    ready_at: float | None,
    ended_at: float | None = None,
    inferred: bool = False,
) -> ReplicaLife:
    """The pod as the life of a replica.

    ``ready_at``: when it first was ready, for a pod that drains says no more; ``ended_at``: when it was found gone.
    """
    labels, placed = labels_of(pod), condition(pod, "PodScheduled")
    scheduled_at = from_text(pod["metadata"].get("creationTimestamp")) or 0.0
    draining_at = _deleted_at(pod)
    ended = ended_at if ended_at is not None else _terminated_at(pod)
    return ReplicaLife(
        instance=InstanceId(name_of(pod)),
        function=labels.get(SERVICE_LABEL, ""),
        stages=stages,
        revision=labels.get(REVISION_LABEL, ""),
        num_cpus=requested(pod, "cpu"),
        num_gpus=int(requested(pod, "nvidia.com/gpu")),
        scheduled_at=scheduled_at,
        started_at=placed.since if placed.status == "True" else None,
        ready_at=ready_at,
        draining_at=draining_at,
        ended_at=ended,
        reason=trouble(pod) or ("scaled down" if draining_at is not None else ""),
        inferred=inferred,
    )


def trouble(pod: KubeObject) -> str:
    """Why the pod does not start or work; empty where nothing is known to be wrong."""
    placed = condition(pod, "PodScheduled")
    if placed.status == "False":
        return f"unschedulable: {placed.message or placed.reason}"
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in TROUBLES:
            last = (status.get("lastState") or {}).get("terminated") or {}
            why = _exit(last) or waiting.get("message") or ""
            return f"{waiting['reason']} of container {status.get('name')}" + (f": {why}" if why else "")
        terminated = (status.get("state") or {}).get("terminated") or {}
        if terminated and terminated.get("exitCode"):
            return f"container {status.get('name')}: {_exit(terminated)}"
    if (pod.get("status") or {}).get("phase") == "Failed":
        return str(pod["status"].get("message") or pod["status"].get("reason") or "failed")
    return ""


def ready_since(pod: KubeObject) -> float | None:
    """Since when it is ready; None while it is not."""
    ready = condition(pod, "Ready")
    return ready.since if ready.status == "True" else None


def is_active(pod: KubeObject) -> bool:
    """Whether it works, or will."""
    return _deleted_at(pod) is None and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")


def is_ready(pod: KubeObject) -> bool:
    """Whether it takes requests."""
    return is_active(pod) and condition(pod, "Ready").status == "True"


def is_finished(pod: KubeObject) -> bool:
    """Whether it is marked as having no more to do."""
    return annotations_of(pod).get(DELETION_COST) == FINISHED_COST


def requested(pod: KubeObject, resource: str) -> float:
    """What its containers ask for together; a limit without a request counts as one, as on Kubernetes."""
    total = 0.0
    for container in pod.get("spec", {}).get("containers") or ():
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        total += _number(requests.get(resource, limits.get(resource, "0")))
    return round(total, 3)


def _number(quantity: object) -> float:
    text = str(quantity)
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        return 0.0


def _deleted_at(pod: KubeObject) -> float | None:
    """When it was told to end: its ``deletionTimestamp`` is when that has to be done."""
    by = from_text(pod["metadata"].get("deletionTimestamp"))
    return None if by is None else by - float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)


def _terminated_at(pod: KubeObject) -> float | None:
    """When a pod that is over ended: as its last container did, else as the last thing that is known of it happened.

    An evicted pod, and one that its node did not admit (no GPU left there), need not say anything of containers. Such
    pods stay until somebody deletes them, and hold nothing.
    """
    status = pod.get("status") or {}
    if status.get("phase") not in ("Failed", "Succeeded"):
        return None
    finished = [
        from_text(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        for each in status.get("containerStatuses") or ()
    ]
    changed = [from_text(each.get("lastTransitionTime")) for each in status.get("conditions") or ()]
    for times in (finished, changed, [from_text(status.get("startTime"))]):
        known = [time for time in times if time is not None]
        if known:
            return max(known)
    return from_text(pod["metadata"].get("creationTimestamp"))


def _exit(terminated: KubeObject) -> str:
    if not terminated:
        return ""
    reason = str(terminated.get("reason") or "")
    return f"exited with code {terminated.get('exitCode')}" + (f" ({reason})" if reason not in ("", "Error") else "")
