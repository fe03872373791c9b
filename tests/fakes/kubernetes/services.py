"""Knative Services to deploy on the fake cluster: the repository's own manifests, with another image or scale."""

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.kubernetes.object_store import Object

MANIFESTS = Path(__file__).resolve().parents[3] / "deploy" / "base" / "functions"


def base_service(name: str, *, image: str | None = None, **annotations: str) -> Object:
    """A Service of ``deploy/base``; annotations of its template are set over the manifest's, with ``_`` for ``-``."""
    service: Object = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text())
    template = service["spec"]["template"]
    for key, value in annotations.items():
        template["metadata"]["annotations"][f"autoscaling.knative.dev/{key.replace('_', '-')}"] = value
    if image is not None:
        template["spec"]["containers"][0]["image"] = image
    return service


def with_spec(service: Object, **fields: Any) -> Object:
    """The Service with other fields of its template's pod."""
    changed = copy.deepcopy(service)
    changed["spec"]["template"]["spec"].update(fields)
    return changed
