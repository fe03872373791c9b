"""The pods that documents lead to."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.platforms.local.quantities import parse_quantity
from tests.manifests.schemas import is_function, label_of
from tests.manifests.tree import Document

QUEUE_PROXY_CPU = 0.025
"""What Knative's own container beside each function asks for."""


@dataclass(frozen=True)
class PodTemplate:
    """One template, and what it is a part of."""

    owner: str
    labels: dict[str, str]
    spec: Document
    is_function: bool

    @property
    def containers(self) -> list[Document]:
        """Its containers."""
        return list(self.spec["containers"])


def template_of(document: Document) -> Document | None:
    """The pod template of a workload; None for what makes no pods."""
    if is_function(document):
        return dict(document["spec"]["template"])
    match document["kind"]:
        case "Deployment" | "StatefulSet":
            return dict(document["spec"]["template"])
        case "CronJob":
            return dict(document["spec"]["jobTemplate"]["spec"]["template"])
        case "InferenceService" if "containers" in document["spec"]["predictor"]:
            # KServe hands the labels on to the pods that Knative makes.
            return {"metadata": {"labels": document["metadata"]["labels"]}, "spec": document["spec"]["predictor"]}
        case "ServingRuntime":
            return {"metadata": {"labels": document["metadata"]["labels"]}, "spec": document["spec"]}
    return None


def pods_of(documents: Iterable[Document]) -> Iterator[PodTemplate]:
    """All pod templates."""
    for document in documents:
        template = template_of(document)
        if template is not None:
            yield PodTemplate(
                owner=label_of(document),
                labels=template.get("metadata", {}).get("labels", {}),
                spec=template["spec"],
                is_function=is_function(document) or document["kind"] == "InferenceService",
            )


def cpus_of(pod: PodTemplate) -> float:
    """CPUs that one pod asks for, Knative's part included."""
    asked = sum(parse_quantity(str(found["resources"]["requests"]["cpu"])) for found in pod.containers)
    return float(asked) + (QUEUE_PROXY_CPU if pod.is_function else 0.0)


def secret_keys(pod: PodTemplate) -> Iterator[tuple[str, str]]:
    """Secrets and keys without which the pod does not start."""
    for container in pod.containers:
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference and not reference.get("optional"):
                yield reference["name"], reference["key"]
    for volume in pod.spec.get("volumes", ()):
        secret = volume.get("secret")
        if secret and not secret.get("optional"):
            yield from ((secret["secretName"], item["key"]) for item in secret["items"])
