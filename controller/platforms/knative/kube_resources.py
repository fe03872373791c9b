"""The kinds of objects that the controller reads or patches, and their paths in the Kubernetes API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KubeObject = Mapping[str, Any]
"""An object as the API's JSON has it."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object."""

    group: str
    """Empty for Kubernetes' own core."""
    version: str
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        """Path of all objects of a namespace, or of one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        path = f"{root}/namespaces/{namespace}/{self.plural}"
        return f"{path}/{name}" if name else path

    def __str__(self) -> str:
        """As a Role and kubectl name it: ``revisions.serving.knative.dev``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods")
SERVICES = Resource("serving.knative.dev", "v1", "services")
REVISIONS = Resource("serving.knative.dev", "v1", "revisions")


def name_of(found: KubeObject) -> str:
    """``metadata.name``"""
    return str(found["metadata"]["name"])


def labels_of(found: KubeObject) -> Mapping[str, str]:
    """``metadata.labels``"""
    return found["metadata"].get("labels") or {}


def annotations_of(found: KubeObject) -> Mapping[str, str]:
    """``metadata.annotations``"""
    return found["metadata"].get("annotations") or {}


def version_of(found: KubeObject) -> str:
    """``metadata.resourceVersion``"""
    return str(found["metadata"]["resourceVersion"])
