"""Merge patches of a Knative Service: another image, other variables or resources; which revision is asked. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.platforms.editing import FunctionChange
from controller.platforms.knative.function_reading import ROUTED_TO, container_of
from controller.platforms.knative.kube_resources import KubeObject


def routed(service: KubeObject, revision: str) -> Mapping[str, Any] | None:
    """Sends all requests to a revision by its name; None where they go there already. Tags stay."""
    targets: Sequence[Mapping[str, Any]] = service["spec"].get("traffic") or ()
    kept = [
        {"revisionName": target["revisionName"], "tag": target["tag"], "percent": 0, "latestRevision": False}
        for target in targets
        if target.get("tag") and target.get("revisionName") and target["revisionName"] != revision
    ]
    wanted = [{"revisionName": revision, "percent": 100, "latestRevision": False}, *kept]
    known = [(target.get("revisionName"), target.get("percent") or 0) for target in targets]
    if known == [(target["revisionName"], target["percent"]) for target in wanted]:
        return None
    return {"metadata": {"annotations": {ROUTED_TO: revision}}, "spec": {"traffic": wanted}}


def changed(service: KubeObject, change: FunctionChange) -> Mapping[str, Any] | None:
    """Changes the template's serving container; None where nothing would be different."""
    template = service["spec"]["template"]
    before = container_of(service)
    after = dict(before)
    if change.image is not None:
        after["image"] = change.image
    if change.env:
        after["env"] = _with_variables(before.get("env") or (), change.env)
    if change.requests or change.limits:
        resources = dict(before.get("resources") or {})
        for group, amounts in (("requests", change.requests), ("limits", change.limits)):
            if amounts:
                resources[group] = {**(resources.get(group) or {}), **amounts}
        after["resources"] = resources
    if after == before:
        return None
    containers = [after if container == before else container for container in template["spec"]["containers"]]
    patch: dict[str, Any] = {"spec": {"containers": containers}}
    if template.get("metadata", {}).get("name"):
        # A template that names its revision has to name another one, or none.
        patch["metadata"] = {"name": None}
    return {"spec": {"template": patch}}


def restored(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Brings an earlier template's container list back."""
    return {"spec": {"template": {"spec": {"containers": template["spec"]["containers"]}}}}


def _with_variables(known: Sequence[Mapping[str, Any]], changes: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
    """The variables in their order, the new ones last. One that came from a Secret may be replaced by a value."""
    result: list[Mapping[str, Any]] = []
    for entry in known:
        name = entry["name"]
        if name not in changes:
            result.append(entry)
        elif (value := changes[name]) is not None:
            result.append({"name": name, "value": value})
    there = {entry["name"] for entry in known}
    result += [
        {"name": name, "value": value} for name, value in changes.items() if value is not None and name not in there
    ]
    return result
