"""Pods, Revisions and Services as a cluster shows them, with what a test wants to be different."""

from typing import Any

Object = dict[str, Any]


def condition(
    type: str, status: str, reason: str = "", message: str = "", since: str = "2026-11-30T12:00:05Z"
) -> Object:
    """One entry of ``status.conditions``."""
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def pod(
    name: str = "rollout-00001-a",
    *,
    revision: str = "rollout-00001",
    conditions: list[Object] | None = None,
    state: Object | None = None,
    phase: str = "Running",
    **metadata: Any,
) -> Object:
    """A pod that is ready, unless something else is said."""
    ready = [condition("PodScheduled", "True", since="2026-11-30T12:00:02Z"), condition("Ready", "True")]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-30T12:00:00Z",
            "labels": {"serving.knative.dev/service": "rollout", "serving.knative.dev/revision": revision},
            **metadata,
        },
        "spec": {
            "containers": [
                {"name": "function", "resources": {"requests": {"cpu": "1500m"}, "limits": {"nvidia.com/gpu": "2"}}},
                {"name": "queue-proxy", "resources": {"requests": {"cpu": "25m"}}},
            ]
        },
        "status": {
            "phase": phase,
            "conditions": ready if conditions is None else conditions,
            "containerStatuses": [{"name": "function", "state": state or {"running": {}}}],
        },
    }


def revision(
    name: str = "rollout-00001", *, ready: Object | None = None, concurrency: int = 1, **annotations: str
) -> Object:
    """A Revision that is ready. Annotations of the autoscaler, with ``_`` for ``-``."""
    scaling = {f"autoscaling.knative.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "metadata": {
            "name": name,
            "resourceVersion": "1",
            "labels": {"serving.knative.dev/service": "rollout"},
            "annotations": scaling,
        },
        "spec": {"containerConcurrency": concurrency},
        "status": {"conditions": [ready or condition("Ready", "True")]},
    }


def service(
    name: str = "rollout",
    *,
    traffic: list[Object] | None = None,
    ready: Object | None = None,
    stages: str | None = None,
    status: Object | None = None,
) -> Object:
    """A Service whose requests go to its first revision."""
    env = [] if stages is None else [{"name": "RLHFLESS_STAGES", "value": stages}]
    shown = {
        "url": f"http://{name}.rlhfless.example.com",
        "address": {"url": f"http://{name}.rlhfless.svc.cluster.local"},
        "latestCreatedRevisionName": f"{name}-00001",
        "latestReadyRevisionName": f"{name}-00001",
        "traffic": traffic if traffic is not None else [{"revisionName": f"{name}-00001", "percent": 100}],
        "conditions": [ready or condition("Ready", "True")],
    }
    return {
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"template": {"spec": {"containers": [{"image": "there/image@sha256:1", "ports": [{}], "env": env}]}}},
        "status": shown if status is None else status,
    }
