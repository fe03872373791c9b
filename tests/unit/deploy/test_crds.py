"""Against the real schemas and default ConfigMaps of Knative and KServe, where they lie beside the repository."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.manifests.feature_flags import DEFAULT_MAX_TIMEOUT_S, POD_FIELDS, VOLUMES
from tests.manifests.schemas import label_of
from tests.manifests.tree import (
    COMPONENTS,
    DEPLOY,
    KUBECTL,
    OVERLAYS,
    Document,
    base_documents,
    built,
    cluster_patches,
    composed,
    needs_kubectl,
)

CRDS = Path(os.environ.get("RLHFLESS_CRDS") or DEPLOY.parents[1] / "shared" / "crds")
FILES = {
    ("serving.knative.dev/v1", "Service"): "knative/service.yaml",
    ("serving.kserve.io/v1beta1", "InferenceService"): "kserve/inferenceservices.yaml",
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): "kserve/servingruntimes.yaml",
}

pytestmark = pytest.mark.skipif(
    not CRDS.is_dir(), reason="the schemas of Knative and KServe are not here; RLHFLESS_CRDS names their folder"
)


@cache
def validator(api_version: str, kind: str) -> jsonschema.Draft202012Validator:
    """The structural schema of a kind, made strict: what it does not name is refused."""
    content = yaml.load(
        (CRDS / FILES[api_version, kind]).read_text(encoding="utf-8"),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),
    )
    [schema] = [
        version["schema"]["openAPIV3Schema"]
        for version in content["spec"]["versions"]
        if version["name"] == api_version.partition("/")[2]
    ]
    return jsonschema.Draft202012Validator(strict(schema))


def strict(schema: Any) -> Any:
    """A Kubernetes structural schema as JSON schema."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items() if key not in ("format", "properties")}
    if "properties" in schema:
        made["properties"] = {name: strict(field) for name, field in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    return made


def crd_problems(documents: list[Document]) -> list[str]:
    found = []
    for document in documents:
        key = (document["apiVersion"], document["kind"])
        if key in FILES:
            # The API server knows this part without a schema.
            bare = {**document, "metadata": {}}
            found += [
                f"{label_of(document)}: {error.json_path}: {error.message}"
                for error in validator(*key).iter_errors(bare)
            ]
    return found


def test_the_base_is_what_knative_takes() -> None:
    assert crd_problems(base_documents()) == []


@needs_kubectl
@pytest.mark.parametrize("folder", [*OVERLAYS, *COMPONENTS], ids=lambda folder: folder.name)
def test_what_is_built_is_what_knative_and_kserve_take(folder: Path) -> None:
    assert KUBECTL
    assert crd_problems(built(folder) if folder in OVERLAYS else composed(folder.name)) == []


def test_a_wrong_field_is_seen() -> None:
    [service, *_] = [found for found in base_documents() if found["apiVersion"] == "serving.knative.dev/v1"]
    service["spec"]["template"]["spec"]["timeoutSecond"] = 600
    assert any("timeoutSecond" in problem for problem in crd_problems([service]))


def defaults(name: str) -> dict[str, str]:
    """Knative's default ConfigMap, whose values stand in an example."""
    [content] = yaml.safe_load_all((CRDS / "config" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {str(key): str(value) for key, value in yaml.safe_load(content["data"]["_example"]).items()}


def test_feature_flags_are_knatives_and_off_by_default() -> None:
    features = defaults("config-features")
    for flag in (*POD_FIELDS.values(), *VOLUMES.values(), "kubernetes.podspec-persistent-volume-write"):
        assert features[flag] == "disabled", flag


def test_administrators_patches_change_keys_that_there_are() -> None:
    for component in COMPONENTS:
        for file, patch in cluster_patches(component).items():
            if "data" in patch:
                assert patch["data"].keys() <= defaults(file.removesuffix(".patch.yaml")).keys()


def test_the_limit_of_timeouts_is_knatives() -> None:
    assert defaults("config-defaults")["max-revision-timeout-seconds"] == str(DEFAULT_MAX_TIMEOUT_S)


def test_images_of_the_node_are_not_looked_for_in_a_registry() -> None:
    assert "dev.local" in defaults("config-deployment")["registries-skipping-tag-resolving"].split(",")
