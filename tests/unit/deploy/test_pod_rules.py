"""Each rule of the restricted pod security standard catches a pod that breaks it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.manifests.pod_rules import pod_problems
from tests.manifests.pods import pods_of
from tests.manifests.tree import BASE, Document, documents

Edit = Callable[[Document], object]


def problems(edit: Edit = lambda spec: None) -> list[str]:
    """Of Redis' pod, edited."""
    found = copy.deepcopy(documents(BASE / "redis.yaml"))
    [pod] = pods_of(found)
    edit(pod.spec)
    return list(pod_problems(pod))


def container(spec: Document) -> dict[str, Any]:
    return spec["containers"][0]


def context(**values: Any) -> Edit:
    return lambda spec: container(spec)["securityContext"].update(values)


def test_the_unedited_pod_has_no_problem() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda spec: spec.update(hostNetwork=True), "hostNetwork"),
        (lambda spec: spec.update(hostPID=True), "hostPID"),
        (lambda spec: spec.update(hostIPC=True), "hostIPC"),
        (lambda spec: spec.update(volumes=[{"name": "a", "hostPath": {"path": "/"}}]), "volume a"),
        (context(privileged=True), "privileged"),
        (context(allowPrivilegeEscalation=True), "allowPrivilegeEscalation"),
        (lambda spec: container(spec).pop("securityContext"), "allowPrivilegeEscalation"),
        (context(capabilities={"drop": ["all"]}), "capabilities"),
        (context(capabilities={"drop": ["ALL"], "add": ["NET_ADMIN"]}), "capabilities"),
        (context(runAsNonRoot=False), "root"),
        (context(runAsUser=0), "root"),
        (lambda spec: spec["securityContext"].pop("runAsUser"), "root"),
        (lambda spec: spec["securityContext"].pop("seccompProfile"), "seccomp"),
        (context(seccompProfile={"type": "Unconfined"}), "seccomp"),
        (context(readOnlyRootFilesystem=False), "file system"),
        (lambda spec: container(spec)["ports"][0].update(hostPort=6379), "port of the node"),
        (lambda spec: container(spec)["resources"].pop("requests"), "request"),
        (lambda spec: container(spec)["resources"].pop("limits"), "limit"),
        (lambda spec: spec.update(initContainers=[{"name": "a"}]), "allowPrivilegeEscalation"),
    ],
)
def test_a_rule_catches(edit: Edit, says: str) -> None:
    assert any(says in problem for problem in problems(edit))
