"""What every pod here keeps to: the restricted pod security standard, and a root file system that stays as it is.

Source: Kubernetes 1.34, Pod Security Standards, level ``restricted``.
"""

from collections.abc import Iterator

from tests.manifests.pods import PodTemplate
from tests.manifests.tree import Document

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def pod_problems(pod: PodTemplate) -> Iterator[str]:
    """What the namespace's admission refuses, and what is asked beyond it."""
    for problem in _problems(pod):
        yield f"{pod.owner}: {problem}"


def _problems(pod: PodTemplate) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.spec.get(field):
            yield f"{field} is refused"
    for volume in pod.spec.get("volumes", ()):
        if not VOLUMES & volume.keys():
            yield f"volume {volume['name']} is of a kind that is refused"
    for container in (*pod.containers, *pod.spec.get("initContainers", ())):
        yield from _container_problems(container, pod.spec.get("securityContext", {}))


def _container_problems(container: Document, pod_context: Document) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = {**pod_context, **own}
    if own.get("privileged"):
        yield "it is privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if own.get("capabilities", {}).get("drop") != ["ALL"] or own.get("capabilities", {}).get("add"):
        yield 'capabilities are not dropped with drop: ["ALL"]'
    if both.get("runAsNonRoot") is not True or not both.get("runAsUser"):
        yield "it may run as root"
    if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        yield "it has no seccomp profile"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "its root file system can be written"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "it takes a port of the node"
    resources = container.get("resources", {})
    if not {"cpu", "memory"} <= resources.get("requests", {}).keys() or "memory" not in resources.get("limits", {}):
        yield "it lacks a request of cpu and memory, or a limit of memory"
