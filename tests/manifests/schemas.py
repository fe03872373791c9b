"""Every document against its schema: Kubernetes' own from the package that carries them, typed models for the rest."""

import copy
import json
from collections.abc import Iterator
from functools import cache

import kubernetes_validate
from pydantic import BaseModel, ValidationError

from tests.manifests.inference_service import InferenceService, ServingRuntime
from tests.manifests.knative_service import KnativeService
from tests.manifests.pod_monitor import PodMonitor
from tests.manifests.tree import Document

KUBERNETES = "1.34.0"

MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("serving.knative.dev/v1", "Service"): KnativeService,
    ("serving.kserve.io/v1beta1", "InferenceService"): InferenceService,
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): ServingRuntime,
    ("monitoring.coreos.com/v1", "PodMonitor"): PodMonitor,
}
KNATIVE_ONLY = ("containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds", "idleTimeoutSeconds")


def is_function(document: Document) -> bool:
    """Whether it is a Knative Service."""
    return (document["apiVersion"], document["kind"]) == ("serving.knative.dev/v1", "Service")


def label_of(document: Document) -> str:
    """How problems name a document."""
    return f"{document['kind']} {document['metadata']['name']}"


def schema_problems(document: Document) -> Iterator[str]:
    """What is wrong by the schema of its kind."""
    model = MODELS.get((document["apiVersion"], document["kind"]))
    if model is None:
        yield from _kubernetes_problems(document)
        return
    try:
        model.model_validate(document)
    except ValidationError as error:
        for found in error.errors():
            yield f"{label_of(document)}: {'.'.join(map(str, found['loc']))}: {found['msg']}"
        return
    if model is KnativeService:
        # Knative makes a pod of it: Kubernetes' schema knows every field of that pod.
        yield from (f"{label_of(document)} as a {problem}" for problem in _kubernetes_problems(_as_pod(document)))


def _kubernetes_problems(document: Document) -> list[str]:
    # Overlays share most of their documents.
    return _kubernetes_problems_of(json.dumps(document, sort_keys=True))


@cache
def _kubernetes_problems_of(text: str) -> list[str]:
    document = json.loads(text)
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{label_of(document)}: {'.'.join(map(str, error.path))}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError:
        return [f"{label_of(document)}: there is no {document['kind']} in {document['apiVersion']}"]
    return []


def _as_pod(service: Document) -> Document:
    template = copy.deepcopy(service["spec"]["template"])
    spec = {key: value for key, value in template["spec"].items() if key not in KNATIVE_ONLY}
    for container in spec["containers"]:
        container.setdefault("name", "user-container")
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            if "httpGet" in container.get(probe, {}):
                container[probe]["httpGet"].setdefault("port", 8080)
    name = service["metadata"]["name"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**template.get("metadata", {}), "name": name}, "spec": spec}
