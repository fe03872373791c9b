"""Every overlay, and every component alone on the base, as kubectl builds them."""

from pathlib import Path

import pytest
import yaml

from controller.platforms.local.manifest_folder import read_manifests
from controller.platforms.local.quantities import parse_quantity
from controller.platforms.stage_routing import function_of
from shared.contracts.stage import Stage
from tests.manifests.feature_flags import DEFAULT_MAX_TIMEOUT_S
from tests.manifests.function_rules import container, stages
from tests.manifests.pods import cpus_of, pods_of
from tests.manifests.problems import problems
from tests.manifests.schemas import is_function, label_of
from tests.manifests.secrets import secret_keys_made
from tests.manifests.tree import (
    BASE,
    COMPONENTS,
    DEPLOY,
    OVERLAYS,
    Document,
    base_documents,
    built,
    cluster_patches,
    composed,
    needs_kubectl,
)
from tests.manifests.whole_rules import namespace_problems

pytestmark = needs_kubectl

COMPUTING = {"prefill", "rollout", "reference", "critic", "learner"}


def functions(documents: list[Document]) -> dict[str, Document]:
    return {document["metadata"]["name"]: document for document in documents if is_function(document)}


def memory_bytes(service: Document) -> float:
    return float(parse_quantity(container(service)["resources"]["limits"]["memory"]))


def controller_variables(documents: list[Document]) -> dict[str, str]:
    [controller] = [pod for pod in pods_of(documents) if pod.owner == "Deployment controller"]
    return {entry["name"]: entry.get("value", "") for entry in controller.containers[0]["env"]}


def test_the_base_is_built_as_it_lies_there() -> None:
    found = built(BASE)
    assert list(namespace_problems(found, "rlhfless")) == []
    assert {label_of(document) for document in found} == {label_of(document) for document in base_documents()}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda folder: folder.name)
def test_nothing_is_known_to_be_wrong_with_an_overlay(overlay: Path) -> None:
    found = built(overlay)
    assert list(problems(found, cluster_patches(overlay))) == []
    assert list(namespace_problems(found, "rlhfless")) == []


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda folder: folder.name)
def test_nothing_is_known_to_be_wrong_with_a_component(component: Path) -> None:
    found = composed(component.name)
    assert list(problems(found, cluster_patches(component))) == []
    assert list(namespace_problems(found, "rlhfless")) == []


def test_components_combine() -> None:
    """All but those that are about the same thing: sizes, where blobs lie, and what reward may reach."""
    apart = {"small", "object-store", "kserve", "kserve-judge"}
    together = [component for component in COMPONENTS if component.name not in apart]
    patches: dict[str, Document] = {}
    for component in together:
        for file, patch in cluster_patches(component).items():
            for key, value in patch.items():
                patches.setdefault(file, {}).setdefault(key, {}).update(value)
    assert list(problems(composed(*(component.name for component in together)), patches)) == []


def test_images_are_replaced_in_functions_too() -> None:
    images = "images: [{name: dev.local/rlhfless/function-cpu, newName: registry.example.com/f, newTag: '7'}]"
    found = functions(composed(extra=images)).values()
    assert {container(service)["image"] for service in found} == {"registry.example.com/f:7"}


def test_another_namespace_is_one_line() -> None:
    assert list(namespace_problems(composed(namespace="team-a"), "team-a")) == []


def test_gpu_gives_one_to_each_that_computes() -> None:
    for name, service in functions(composed("gpu")).items():
        limit = container(service)["resources"]["limits"].get("nvidia.com/gpu")
        assert limit == ("1" if name in COMPUTING else None), name
        assert ("cuda" in container(service)["image"]) == (name in COMPUTING)


def test_gpu_nodes_are_chosen_and_their_taint_is_borne() -> None:
    for name, service in functions(composed("gpu-nodes")).items():
        pod = service["spec"]["template"]["spec"]
        assert ("nodeSelector" in pod, "tolerations" in pod) == (name in COMPUTING, name in COMPUTING)


def test_locality_adds_prefill_and_rollout_to_the_learners_process(tmp_path: Path) -> None:
    found = functions(composed("locality"))
    assert {name: stages(service) for name, service in found.items()} == {
        **{stage.value: [stage] for stage in Stage},
        "learner": ["learner", "prefill", "rollout"],
    }
    limits = {name: memory_bytes(service) for name, service in found.items()}
    assert limits["learner"] >= memory_bytes(functions(built(BASE))["learner"]) + limits["rollout"]
    # The local platform takes the same functions from a folder, and calls go to a stage's own unless it is told.
    for name, service in found.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(service))
    serving = {name: manifest.stages for name, manifest in read_manifests(tmp_path).items()}
    assert function_of(serving, Stage.ROLLOUT) == "rollout"
    assert function_of(serving, Stage.ROLLOUT, beside=Stage.LEARNER) == "learner"
    assert function_of(serving, Stage.PREFILL, beside=Stage.LEARNER) == "learner"


@pytest.mark.parametrize("components", [("locality", "gpu"), ("locality", "gpu", "gpu-nodes")], ids="+".join)
def test_locality_takes_no_memory_from_a_gpus_process(components: tuple[str, ...]) -> None:
    found = functions(composed(*components))
    assert memory_bytes(found["learner"]) == memory_bytes(functions(composed("gpu"))["learner"])
    assert memory_bytes(functions(built(DEPLOY / "overlays" / "locality"))["learner"]) == memory_bytes(found["learner"])


def test_long_steps_raise_every_timeout_and_tell_the_controller() -> None:
    found = composed("long-steps")
    timeouts = {
        service["spec"]["template"]["spec"][key]
        for service in functions(found).values()
        for key in ("timeoutSeconds", "responseStartTimeoutSeconds")
    }
    assert timeouts == {3600}
    assert controller_variables(found)["RLHFLESS_CALL_TIMEOUT_S"] == "3600"


def test_the_controller_knows_the_functions_timeout() -> None:
    assert controller_variables(base_documents())["RLHFLESS_CALL_TIMEOUT_S"] == str(DEFAULT_MAX_TIMEOUT_S)


def test_a_shared_volume_holds_everybodys_blobs() -> None:
    found = composed("shared-volume")
    pods = [pod for pod in pods_of(found) if pod.is_function or pod.owner == "Deployment controller"]
    assert len(pods) == len(functions(found)) + 1
    for pod in pods:
        [one] = pod.containers
        assert {"name": "RLHFLESS_BLOB_URL", "value": "file:///blobs"} in one["env"], pod.owner
        assert {"name": "blobs", "mountPath": "/blobs"} in one["volumeMounts"]


@pytest.mark.parametrize("components", [("object-store",), ("kserve", "object-store")], ids="+".join)
def test_an_object_store_holds_everybodys_blobs(components: tuple[str, ...]) -> None:
    found = composed(*components)
    containers = [
        pod.containers[0] for pod in pods_of(found) if pod.is_function or pod.owner == "Deployment controller"
    ]
    assert len(containers) == len(Stage) + 1
    for one in containers:
        variables = {entry["name"]: entry for entry in one["env"]}
        assert variables["RLHFLESS_BLOB_URL"]["value"] == "s3://rlhfless/runs"
        assert variables["AWS_ENDPOINT_URL"]["value"].startswith("https://")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            key = variables[name]["valueFrom"]["secretKeyRef"]
            assert key["name"] == "rlhfless-object-store"
            assert key["optional"], "a pod's own account may have the right"
            assert key["key"] in secret_keys_made()["rlhfless-object-store"]


def test_small_leaves_room_on_four_cpus() -> None:
    """Beside the 2 CPUs that a cluster's own pods ask for, with two replicas of those that come in numbers."""
    pods = list(pods_of(built(DEPLOY / "overlays" / "cpu-kind")))
    again = [pod for pod in pods if pod.owner in ("Service rollout", "Service reward")]
    assert sum(map(cpus_of, [*pods, *again])) <= 2.0


@pytest.mark.parametrize("stage", ["reward", "reference"])
def test_an_inference_service_is_what_the_function_is(stage: str) -> None:
    """But for what KServe calls otherwise."""
    found = composed("kserve")
    assert stage not in functions(found)
    service = functions(built(BASE))[stage]["spec"]["template"]
    [predictor] = [
        document["spec"]["predictor"]
        for document in found
        if (document["kind"], document["metadata"]["name"]) == ("InferenceService", stage)
    ]
    [mine], [theirs] = predictor["containers"], service["spec"]["containers"]
    assert mine == {**theirs, "name": "kserve-container"}
    assert predictor["volumes"] == service["spec"]["volumes"]
    assert predictor["containerConcurrency"] == service["spec"]["containerConcurrency"]
    assert predictor["timeout"] == service["spec"]["timeoutSeconds"] == service["spec"]["responseStartTimeoutSeconds"]
    scaling = {
        "autoscaling.knative.dev/min-scale": str(predictor["minReplicas"]),
        "autoscaling.knative.dev/max-scale": str(predictor["maxReplicas"]),
    }
    assert {**predictor["annotations"], **scaling} == service["metadata"]["annotations"]


def test_the_judge_may_be_asked_by_reward() -> None:
    found = functions(composed("kserve-judge"))["reward"]
    values = {entry["name"]: entry.get("value") for entry in container(found)["env"]}
    assert values["RLHFLESS_REWARD_ALLOWED_HOSTS"] == "10.96.0.0/12"


def test_the_code_sandbox_leaves_reward_no_secret_but_the_functions_own() -> None:
    reward = functions(composed("code-sandbox"))["reward"]["spec"]["template"]["spec"]
    secrets = {volume["secret"]["secretName"] for volume in reward["volumes"] if "secret" in volume}
    assert secrets == {"rlhfless"}
