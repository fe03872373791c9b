"""The processes' own settings take the environment that their manifests give them."""

from pathlib import Path

import pytest

from controller.settings import ControllerSettings
from shared.service.settings import FunctionSettings
from tests.manifests.function_rules import container, stages
from tests.manifests.pods import pods_of
from tests.manifests.tree import FUNCTIONS, Document, base_documents, documents

PASSWORD = "0123456789abcdef"


def environment(found: Document) -> dict[str, str]:
    """As the kubelet fills it: every secret has the same value."""
    return {entry["name"]: entry.get("value", PASSWORD) for entry in found["env"]}


@pytest.mark.parametrize("file", sorted(FUNCTIONS.glob("*.yaml")), ids=lambda file: file.stem)
def test_a_function_starts_with_what_its_manifest_says(file: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(PASSWORD)
    [service] = documents(file)
    [mount] = [found for found in container(service)["volumeMounts"] if found["name"] == "token"]
    given = environment(container(service))
    assert given["RLHFLESS_TOKEN_FILE"] == f"{mount['mountPath']}/token"
    settings = FunctionSettings.from_environment({**given, "RLHFLESS_TOKEN_FILE": str(token), "PORT": "8080"})
    assert list(settings.stages) == stages(service)
    assert settings.redis_password == settings.token == PASSWORD
    assert settings.model_roots == (Path("/models"),)


def test_the_controller_starts_with_what_its_deployment_says() -> None:
    [pod] = [found for found in pods_of(base_documents()) if found.owner == "Deployment controller"]
    [found] = pod.containers
    settings = ControllerSettings.from_environment({**environment(found), "KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    assert settings.cluster is not None
    assert settings.api_host == "0.0.0.0"
    assert settings.api_port == found["ports"][0]["containerPort"]
    files = {settings.api_token_file, settings.admin_token_file, settings.token_file}
    [secrets] = [volume["secret"] for volume in pod.spec["volumes"] if volume["name"] == "secrets"]
    [mount] = [mount for mount in found["volumeMounts"] if mount["name"] == "secrets"]
    assert files == {Path(mount["mountPath"], item["path"]) for item in secrets["items"]}
    assert settings.roots == (Path("/models"), settings.state_dir)
    assert str(settings.state_dir) in {mount["mountPath"] for mount in found["volumeMounts"]}
