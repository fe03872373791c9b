"""What a Knative Service may only have where the cluster's administrator has allowed it.

Source: knative/serving 1.23, ``pkg/apis/serving/fieldmask.go``, ``pkg/apis/config/features.go`` and ``defaults.go``.
"""

from collections.abc import Iterator

from tests.manifests.tree import Document

DEFAULT_MAX_TIMEOUT_S = 600

POD_FIELDS = {
    "nodeSelector": "kubernetes.podspec-nodeselector",
    "tolerations": "kubernetes.podspec-tolerations",
    "affinity": "kubernetes.podspec-affinity",
    "topologySpreadConstraints": "kubernetes.podspec-topologyspreadconstraints",
    "runtimeClassName": "kubernetes.podspec-runtimeclassname",
    "priorityClassName": "kubernetes.podspec-priorityclassname",
    "schedulerName": "kubernetes.podspec-schedulername",
    "initContainers": "kubernetes.podspec-init-containers",
    "hostAliases": "kubernetes.podspec-hostaliases",
    "securityContext": "kubernetes.podspec-securitycontext",
    "shareProcessNamespace": "kubernetes.podspec-shareprocessnamespace",
    "dnsPolicy": "kubernetes.podspec-dnspolicy",
    "dnsConfig": "kubernetes.podspec-dnsconfig",
    "hostIPC": "kubernetes.podspec-hostipc",
    "hostPID": "kubernetes.podspec-hostpid",
    "hostNetwork": "kubernetes.podspec-hostnetwork",
}
VOLUMES = {
    "persistentVolumeClaim": "kubernetes.podspec-persistent-volume-claim",
    "hostPath": "kubernetes.podspec-volumes-hostpath",
    "csi": "kubernetes.podspec-volumes-csi",
    "ephemeral": "kubernetes.podspec-volumes-ephemeral",
    "image": "kubernetes.podspec-volumes-image",
}
CLAIM_WRITE = "kubernetes.podspec-persistent-volume-write"


def flags_needed(service: Document) -> set[str]:
    """Keys of ``config-features`` that a Service needs to be enabled."""
    pod = service["spec"]["template"]["spec"]
    needed = {flag for field, flag in POD_FIELDS.items() if field in pod}
    for volume in pod.get("volumes", ()):
        needed |= {flag for kind, flag in VOLUMES.items() if kind in volume}
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("readOnly"):
            needed.add(CLAIM_WRITE)
    for container in pod["containers"]:
        if container.get("securityContext", {}).get("capabilities", {}).get("add"):
            needed.add("kubernetes.containerspec-addcapabilities")
        if any("fieldRef" in entry.get("valueFrom", {}) for entry in container.get("env", ())):
            needed.add("kubernetes.podspec-fieldref")
    return needed


def cluster_problems(service: Document, patches: dict[str, Document]) -> Iterator[str]:
    """What a cluster refuses that is changed by these patches of Knative's own objects and no others."""
    name, data = service["metadata"]["name"], {file: patch.get("data", {}) for file, patch in patches.items()}
    enabled = {key for key, value in data.get("config-features.patch.yaml", {}).items() if value == "enabled"}
    for flag in sorted(flags_needed(service) - enabled):
        yield f"{name}: needs the feature flag {flag}, which no config-features.patch.yaml of its parts enables"
    limit_s = int(data.get("config-defaults.patch.yaml", {}).get("max-revision-timeout-seconds", DEFAULT_MAX_TIMEOUT_S))
    timeout_s = service["spec"]["template"]["spec"].get("timeoutSeconds", 300)
    if timeout_s > limit_s:
        yield f"{name}: timeoutSeconds is {timeout_s}, over the cluster's limit of {limit_s}"
    activator = patches.get("activator.patch.yaml", {}).get("spec", {}).get("template", {}).get("spec", {})
    if timeout_s > activator.get("terminationGracePeriodSeconds", DEFAULT_MAX_TIMEOUT_S):
        yield f"{name}: timeoutSeconds is {timeout_s}, longer than a stopped activator waits for its requests"
