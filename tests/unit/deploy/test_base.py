"""The base as it lies there: right by schema and rules, on a cluster where nothing was changed for it."""

from pathlib import Path

import pytest
import yaml

from functions.main import HANDLERS
from shared.contracts.stage import Stage
from tests.manifests.feature_flags import flags_needed
from tests.manifests.function_rules import container, stages
from tests.manifests.pods import cpus_of, pods_of
from tests.manifests.problems import problems
from tests.manifests.schemas import is_function
from tests.manifests.tree import BASE, FUNCTIONS, base_documents, documents, kustomization
from tests.manifests.variables import BY_LIBRARIES, CONTROLLER_FILES, FUNCTION_FILES, variables_read

FILES = sorted(FUNCTIONS.glob("*.yaml"))


def test_nothing_is_known_to_be_wrong_with_it() -> None:
    assert list(problems(base_documents(), {})) == []


def test_every_file_is_applied() -> None:
    applied = {BASE / name for name in kustomization(BASE)["resources"]}
    assert applied == {file for file in BASE.rglob("*.yaml") if file.name != "kustomization.yaml"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kn_applies_each_function_by_its_file(file: Path) -> None:
    """``kn service apply NAME -f FILE`` reads one document, whose name is NAME, and no namespace but its own option."""
    [service] = documents(file)
    assert is_function(service)
    assert service["metadata"]["name"] == file.stem
    assert "namespace" not in service["metadata"]


def test_kubectl_applies_each_file_alone() -> None:
    """With ``-n rlhfless``: a binding's subject has to carry its namespace, which is no other then."""
    for found in base_documents():
        assert found["metadata"].get("namespace", "rlhfless") == "rlhfless"
        assert {subject.get("namespace") for subject in found.get("subjects", ())} <= {"rlhfless"}


def test_every_stage_has_one_function_that_serves_it() -> None:
    served = [stage for file in FILES for stage in stages(documents(file)[0])]
    assert sorted(served) == sorted(HANDLERS)
    assert set(served) <= set(Stage)


def test_no_function_needs_a_feature_flag_or_a_gpu() -> None:
    for file in FILES:
        [service] = documents(file)
        assert flags_needed(service) == set()
        assert "nvidia.com/gpu" not in yaml.safe_dump(service)


def test_what_is_set_is_read() -> None:
    for pod in pods_of(base_documents()):
        known = variables_read(FUNCTION_FILES) | BY_LIBRARIES if pod.is_function else variables_read(CONTROLLER_FILES)
        for found in pod.containers:
            names = {entry["name"] for entry in found.get("env", ())}
            if found["name"] == "redis":
                names -= {name for name in names if f"${name}" in found["command"][-1]}
            assert names <= known, pod.owner


def test_all_functions_at_once_fit_on_one_node_with_four_cpus() -> None:
    """Knative starts a replica of each new revision, before anything is called."""
    assert sum(map(cpus_of, pods_of(base_documents()))) <= 4.0


def test_functions_differ_only_where_they_have_to() -> None:
    """One image and the same store for all, so that one edit reaches all."""
    alike = {}
    for file in FILES:
        found = container(documents(file)[0])
        values = {entry["name"]: entry for entry in found["env"]}
        shared = {name: values[name] for name in ("REDIS_URL", "REDIS_PASSWORD", "RLHFLESS_BLOB_URL")}
        alike[file.stem] = (found["image"], found["command"], found["securityContext"], shared)
    assert len({repr(value) for value in alike.values()}) == 1, alike
