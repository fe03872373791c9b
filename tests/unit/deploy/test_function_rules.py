"""Each rule for functions catches a manifest that breaks it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.manifests.feature_flags import cluster_problems, flags_needed
from tests.manifests.function_rules import function_problems
from tests.manifests.schemas import schema_problems
from tests.manifests.tree import FUNCTIONS, Document, documents

Edit = Callable[[Document], object]
SCALING = "autoscaling.knative.dev/"


def service(edit: Edit = lambda found: None) -> Document:
    """The learner's manifest, edited."""
    [found] = documents(FUNCTIONS / "learner.yaml")
    edit(found)
    return found


def template(found: Document) -> dict[str, Any]:
    return found["spec"]["template"]


def pod(found: Document) -> dict[str, Any]:
    return template(found)["spec"]


def container(found: Document) -> dict[str, Any]:
    return pod(found)["containers"][0]


def annotations(found: Document) -> dict[str, str]:
    return template(found)["metadata"]["annotations"]


def volume(name: str) -> Callable[[Document], dict[str, Any]]:
    return lambda found: next(entry for entry in pod(found)["volumes"] if entry["name"] == name)


def without(field: Callable[[Document], dict[str, Any]], key: str) -> Edit:
    return lambda found: field(found).pop(key)


def having(field: Callable[[Document], dict[str, Any]], **values: Any) -> Edit:
    return lambda found: field(found).update(values)


def annotated(key: str, value: str) -> Edit:
    return lambda found: annotations(found).update({key: value})


def test_the_unedited_manifest_has_no_problem() -> None:
    assert [*schema_problems(service()), *function_problems(service()), *cluster_problems(service(), {})] == []


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (without(lambda found: found["metadata"], "labels"), "cluster-local"),
        (having(lambda found: found["metadata"], annotations={f"{SCALING}min-scale": "1"}), "refused on the Service"),
        (annotated(f"{SCALING}minscale", "1"), "minscale"),
        (annotated(f"{SCALING}window", "5s"), "window"),
        (annotated(f"{SCALING}window", "7500ms"), "window"),
        (annotated(f"{SCALING}target-utilization-percentage", "101"), "target-utilization-percentage"),
        (annotated(f"{SCALING}initial-scale", "0"), "initial-scale"),
        (annotated("serving.knative.dev/progres-deadline", "1800s"), "progres-deadline"),
        (annotated("serving.knative.dev/progress-deadline", "1800"), "progress-deadline"),
        (without(annotations, "serving.knative.dev/progress-deadline"), "progress-deadline is 600s"),
        (without(pod, "responseStartTimeoutSeconds"), "responseStartTimeoutSeconds"),
        (having(pod, responseStartTimeoutSeconds=300), "they have to be the same"),
        (without(pod, "timeoutSeconds"), "timeoutSeconds is None"),
        (without(pod, "containerConcurrency"), "containerConcurrency is missing"),
        (having(pod, containerConcurrency=2), "one call at a time"),
        (without(annotations, f"{SCALING}target-utilization-percentage"), "target-utilization-percentage is None"),
        (annotated(f"{SCALING}target-burst-capacity", "211"), "target-burst-capacity is 211"),
        (annotated(f"{SCALING}min-scale", "1"), "min-scale is 1"),
        (without(annotations, f"{SCALING}max-scale"), "max-scale is missing"),
        (without(annotations, f"{SCALING}window"), "window is missing"),
        (without(container, "ports"), "0 ports"),
        (having(container, ports=[{"containerPort": 8080}, {"containerPort": 8081}]), "2 ports"),
        (having(container, ports=[{"containerPort": 8012}]), "queue-proxy"),
        (without(container, "image"), "image ''"),
        (having(container, image="registry.example.com:5000/function"), "neither a version nor a digest"),
        (having(container, image="function:latest"), "neither a version nor a digest"),
        (lambda found: container(found)["env"].append({"name": "PORT", "value": "80"}), "PORT is Knative's"),
        (lambda found: container(found)["env"].append({"name": "K_REVISION", "value": "a"}), "K_REVISION is Knative's"),
        (lambda found: container(found)["env"].append({"name": "REDIS_URL", "value": "a"}), "REDIS_URL is set more"),
        (
            lambda found: container(found)["env"].append(
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
            ),
            "makes no new revision",
        ),
        (having(container, envFrom=[{"secretRef": {"name": "rlhfless"}}]), "envFrom"),
        (lambda found: pod(found)["volumes"].pop(), "mounted but not there"),
        (lambda found: container(found)["volumeMounts"].pop(), "there but not mounted"),
        (lambda found: container(found)["volumeMounts"][-1].update(mountPath="/dev"), "/dev may not be a mount"),
        (lambda found: container(found)["volumeMounts"][0].pop("readOnly"), "not read-only"),
        (having(volume("shm"), emptyDir={"sizeLimit": "256Mi"}), "/dev/shm"),
        (having(volume("shm"), emptyDir={"medium": "Memory"}), "/dev/shm"),
        (without(container, "readinessProbe"), "/readyz"),
        (having(container, readinessProbe={"tcpSocket": {"port": 8080}}), "/readyz"),
        (
            having(container, readinessProbe={"httpGet": {"path": "/readyz"}, "failureThreshold": 3}),
            "refused without periodSeconds",
        ),
        (having(container, livenessProbe={"httpGet": {"path": "/healthz"}}), "livenessProbe"),
        (without(pod, "automountServiceAccountToken"), "automountServiceAccountToken"),
        (having(lambda found: found["spec"], traffic=[{"latestRevision": True, "percent": 90}]), "sum to 90"),
        (without(lambda found: template(found)["metadata"], "labels"), "component: function"),
    ],
)
def test_a_rule_catches(edit: Edit, says: str) -> None:
    assert any(says in problem for problem in function_problems(service(edit)))


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (having(pod, timeoutSecond=600), "timeoutSecond"),
        (having(pod, lifecycle={}), "lifecycle"),
        (having(pod, terminationGracePeriodSeconds=60), "terminationGracePeriodSeconds"),
        (having(pod, restartPolicy="Never"), "restartPolicy"),
        (having(pod, automountServiceAccountToken=True), "automountServiceAccountToken"),
        (having(pod, containerConcurrency=1001), "containerConcurrency"),
        (having(pod, timeoutSeconds="600"), "timeoutSeconds"),
        (having(pod, containers=[]), "containers"),
        (without(container, "image"), "image"),
        (having(container, resorces={}), "resorces"),
        (having(container, ports=[{"containerPort": 8080, "name": "grpc"}]), "name"),
        (having(container, ports=[{"containerPort": 8080, "hostPort": 80}]), "hostPort"),
        (having(container, resources={"claims": []}), "claims"),
        (having(container, readinessProbe={"httpGet": {"pth": "/readyz"}}), "pth"),
        (having(container, securityContext={"privileged": True}), "privileged"),
        (having(container, securityContext={"runAsNonRot": True}), "runAsNonRot"),
        (lambda found: container(found)["env"].append({"name": "A", "value": 1}), "value"),
        (lambda found: container(found)["volumeMounts"][0].update(subPathExpr="a"), "subPathExpr"),
        (annotated(f"{SCALING}max-scale", 3), "max-scale"),  # type: ignore[arg-type]  # what is tested
        (having(volume("shm"), emptyDir={"medium": "Memory", "sizelimit": "1Gi"}), "sizelimit"),
        (having(volume("shm"), emptyDir={"medium": "Ram"}), "medium"),
        (having(volume("shm"), persistentVolumeClaim={"claimname": "a"}), "claimname"),
        (having(pod, tolerations=[{"key": "a", "efect": "NoSchedule"}]), "efect"),
        (having(pod, nodeSelector={"a": 1}), "nodeSelector"),
        (having(lambda found: found["spec"], traffic=[{"percnt": 100}]), "percnt"),
        (having(lambda found: found["metadata"], name="Learner"), "name"),
        (having(lambda found: found, apiVersion="serving.knative.dev/v2"), "there is no Service"),
        (lambda found: container(found)["resources"]["requests"].update(cpu="half"), "cpu"),
    ],
)
def test_the_schema_catches(edit: Edit, says: str) -> None:
    assert any(says in problem for problem in schema_problems(service(edit)))


@pytest.mark.parametrize(
    ("edit", "flag"),
    [
        (having(pod, nodeSelector={"a": "b"}), "kubernetes.podspec-nodeselector"),
        (having(pod, tolerations=[]), "kubernetes.podspec-tolerations"),
        (having(pod, affinity={}), "kubernetes.podspec-affinity"),
        (having(pod, topologySpreadConstraints=[]), "kubernetes.podspec-topologyspreadconstraints"),
        (having(pod, runtimeClassName="nvidia"), "kubernetes.podspec-runtimeclassname"),
        (having(pod, priorityClassName="high"), "kubernetes.podspec-priorityclassname"),
        (having(pod, schedulerName="other"), "kubernetes.podspec-schedulername"),
        (having(pod, initContainers=[]), "kubernetes.podspec-init-containers"),
        (having(pod, securityContext={"fsGroup": 1}), "kubernetes.podspec-securitycontext"),
        (having(pod, hostNetwork=True), "kubernetes.podspec-hostnetwork"),
        (having(volume("tmp"), hostPath={"path": "/"}), "kubernetes.podspec-volumes-hostpath"),
        (
            having(volume("tmp"), persistentVolumeClaim={"claimName": "a", "readOnly": True}),
            "kubernetes.podspec-persistent-volume-claim",
        ),
        (
            having(volume("tmp"), persistentVolumeClaim={"claimName": "a"}),
            "kubernetes.podspec-persistent-volume-write",
        ),
        (
            lambda found: container(found)["env"].append(
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
            ),
            "kubernetes.podspec-fieldref",
        ),
        (
            having(container, securityContext={"capabilities": {"add": ["A"]}}),
            "kubernetes.containerspec-addcapabilities",
        ),
    ],
)
def test_a_feature_behind_a_flag_is_refused_without_it(edit: Edit, flag: str) -> None:
    needed = flags_needed(service(edit))
    assert flag in needed
    assert any(flag in problem for problem in cluster_problems(service(edit), {}))
    enabled = {"config-features.patch.yaml": {"data": dict.fromkeys(needed, "enabled")}}
    assert list(cluster_problems(service(edit), enabled)) == []


def test_a_timeout_over_the_clusters_limit_is_refused_until_all_of_it_is_raised() -> None:
    long = service(having(pod, timeoutSeconds=3600, responseStartTimeoutSeconds=3600))
    limit: dict[str, Document] = {"config-defaults.patch.yaml": {"data": {"max-revision-timeout-seconds": "3600"}}}
    grace: Document = {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 3600}}}}
    assert len(list(cluster_problems(long, {}))) == 2
    assert ["activator" in problem for problem in cluster_problems(long, limit)] == [True]
    assert list(cluster_problems(long, {**limit, "activator.patch.yaml": grace})) == []
