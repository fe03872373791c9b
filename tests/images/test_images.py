"""The images as the manifests start them: what is inside, who they run as, and that they answer."""

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml

from controller.conformance.settings import ConformanceSettings
from controller.conformance.trial import try_function
from controller.platforms.local.redis_server import RedisServer
from shared.contracts.stage import Stage
from shared.store.redis_connection import RedisConnection
from tests.contract.function_process import free_port
from tests.fakes.kubernetes.api_server import NAMESPACE, SERVICES, ApiServer
from tests.fakes.kubernetes.asgi import served
from tests.fakes.kubernetes.services import base_service
from tests.images.builder import REPOSITORY, USER, Builder, Container
from tests.manifests.function_rules import container as container_of
from tests.manifests.pods import pods_of
from tests.manifests.tree import FUNCTIONS, Document, base_documents, documents

pytestmark = pytest.mark.images

TOKEN = "the-shared-token-of-functions"
LOCKS = REPOSITORY / "deploy" / "containers" / "locks"
LIST = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
WRITABLE = """
import os, tempfile
for top in ("/app", "/opt/venv", "/models", "/etc", "/usr", "/var"):
    for folder, _, files in os.walk(top):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            if os.access(path, os.W_OK) and not os.path.islink(path):
                print(path)
tempfile.TemporaryFile().close()
"""
WRITABLE_IN_DEBIAN = {"/var/tmp", "/var/lock"}
"""As in every Debian: by mode 1777."""
START_TIMEOUT_S = 120.0
MOUNTED, SECRETS = "/var/run/secrets/rlhfless", "/secrets"
"""Where the manifests mount the Secret, and where it is here: buildah has a use of its own for /run/secrets."""


@pytest.mark.parametrize(("image", "module"), [("controller", "controller.main"), ("function", "functions.main")])
def test_configuration(image: str, module: str, builder: Builder, request: pytest.FixtureRequest) -> None:
    config = builder.inspect(request.getfixturevalue(f"{image}_image"))
    assert config["Cmd"] == ["python", "-m", module]
    assert not config.get("Entrypoint")
    assert config["User"] == f"{USER}:{USER}"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == f"rlhfless {image}"
    # Another commit may have been made meanwhile.
    assert git("cat-file", "-t", labels["org.opencontainers.image.revision"]) == "commit\n"
    assert {"description", "licenses", "version"} <= {name.rpartition(".")[2] for name in labels}
    assert not [entry for entry in config["Env"] if re.search("PASSWORD|TOKEN|SECRET|KEY|PIP_", entry)]


@pytest.mark.parametrize(("image", "lock"), [("controller", "controller"), ("function", "function-cpu")])
def test_what_is_installed_is_what_is_locked(image: str, lock: str, request: pytest.FixtureRequest) -> None:
    container: Container = request.getfixturevalue(image)
    installed = {(canonical(name), version) for name, version in json.loads(container.output("python", "-c", LIST))}
    lines = (LOCKS / f"{lock}.txt").read_text().splitlines()
    assert installed == {(canonical(name), version) for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("image", ["controller", "function"])
def test_nothing_can_be_written_but_what_is_temporary(image: str, request: pytest.FixtureRequest) -> None:
    container: Container = request.getfixturevalue(image)
    assert container.output("python", "-c", "import os; print(os.getuid(), os.getgid())").split() == [str(USER)] * 2
    assert set(container.output("python", "-c", WRITABLE).split()) <= WRITABLE_IN_DEBIAN


@pytest.mark.parametrize(("image", "packages"), [("controller", "controller"), ("function", "functions")])
def test_it_holds_its_code_and_the_demos_model_and_no_more(
    image: str, packages: str, builder: Builder, request: pytest.FixtureRequest
) -> None:
    container: Container = request.getfixturevalue(image)
    files = set(container.output("find", "/app", "/models", "-type", "f").split())
    revision = builder.inspect(request.getfixturevalue(f"{image}_image"))["Labels"]["org.opencontainers.image.revision"]
    committed = git("ls-tree", "-r", "--name-only", revision, "shared", packages, "scripts/demo/model").split()
    places = {f"/app/{path}".replace("/app/scripts/demo/model", "/models/demo") for path in committed}
    assert places <= files
    assert [path for path in files - places if not path.endswith((".pyc", ".py", ".md"))] == []


@pytest.mark.parametrize("stage", [Stage.REWARD, Stage.ROLLOUT])
async def test_a_function_answers_and_conforms(
    stage: Stage, function: Container, redis_server: RedisServer, redis: RedisConnection, tmp_path: Path
) -> None:
    [service] = documents(FUNCTIONS / f"{stage}.yaml")
    port = free_port()
    variables = variables_of(container_of(service)) | {
        "PORT": str(port),
        "HOSTNAME": f"{stage}-00001-1",
        "K_REVISION": f"{stage}-00001",
        "REDIS_URL": redis_server.url,
        "REDIS_CACHE_URL": redis_server.url,
        "REDIS_PASSWORD": str(redis_server.password),
    }
    mounts = {secret_folder(tmp_path, "token"): f"{SECRETS}:ro"}
    command, log = container_of(service)["command"], tmp_path / "log"
    with function.running(command, environment=variables, mounts=mounts, log=log) as process:
        await until_ready(port, process, log)
        settings = ConformanceSettings.read(
            url=f"http://127.0.0.1:{port}",
            stage=stage,
            token=TOKEN,
            redis_url=redis_server.url,
            model_here=REPOSITORY / "scripts" / "demo" / "model",
            model="/models/demo",
            environment={"REDIS_PASSWORD": str(redis_server.password)},
        )
        findings = await try_function(settings)
    assert [finding for finding in findings if finding.verdict != "passed"] == []
    assert TOKEN not in log.read_text()


async def test_a_function_is_ready_without_a_store(function: Container, tmp_path: Path) -> None:
    [service] = documents(FUNCTIONS / "learner.yaml")
    port, log = free_port(), tmp_path / "log"
    variables = variables_of(container_of(service)) | {"PORT": str(port), "REDIS_URL": "redis://127.0.0.1:1/0"}
    mounts = {secret_folder(tmp_path, "token"): f"{SECRETS}:ro"}
    with function.running(container_of(service)["command"], environment=variables, mounts=mounts, log=log) as process:
        await until_ready(port, process, log)


async def test_the_controller_answers_and_sees_the_functions(
    controller: Container, redis_server: RedisServer, redis: RedisConnection, tmp_path: Path
) -> None:
    [pod] = [found for found in pods_of(base_documents()) if found.owner == "Deployment controller"]
    [one] = pod.containers
    state, port, log = tmp_path / "state", free_port(), tmp_path / "log"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    api = ApiServer(token="the-service-account")
    for stage in Stage:
        service = base_service(stage)
        service["metadata"]["namespace"] = NAMESPACE
        api.store.put(SERVICES, service)
    async with served(api) as address:
        kubeconfig = secret_folder(tmp_path, "kubeconfig", content=yaml.safe_dump(kubeconfig_of(address)))
        variables = variables_of(one) | {
            "RLHFLESS_API_HOST": "127.0.0.1",
            "RLHFLESS_API_PORT": str(port),
            "REDIS_URL": redis_server.url,
            "REDIS_CACHE_URL": redis_server.url,
            "REDIS_PASSWORD": str(redis_server.password),
            "HOSTNAME": "controller-0",
            "KUBECONFIG": "/kube/kubeconfig",
        }
        mounts = {
            secret_folder(tmp_path, "token", "api-token", "admin-token"): f"{SECRETS}:ro",
            state: "/var/lib/rlhfless",
            kubeconfig: "/kube:ro",
        }
        with controller.running(one["command"], environment=variables, mounts=mounts, log=log) as process:
            await until_ready(port, process, log)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                refused = await client.get("/v1/functions")
                answer = await client.get("/v1/functions", headers={"authorization": f"Bearer {TOKEN}-api-token"})
    assert refused.status_code == 401
    assert {entry["name"] for entry in answer.json()["functions"]} == set(Stage)
    assert {asked.verb for asked in api.asked} <= {"list", "watch"}


async def test_the_own_reward_is_built_on_the_functions_image(
    builder: Builder, function_image: str, tmp_path: Path
) -> None:
    folder, port, log = REPOSITORY / "scripts" / "examples" / "own_reward", free_port(), tmp_path / "log"
    image = "localhost/own-reward:test"
    builder.buildah(
        "build", "--quiet", "--pull-never", "--build-arg", f"BASE={function_image}", "-t", image, str(folder)
    )
    [service] = documents(FUNCTIONS / "reward.yaml")
    mounts = {secret_folder(tmp_path, "token"): f"{SECRETS}:ro"}
    variables = variables_of(container_of(service)) | {"PORT": str(port)}
    container = builder.container(image)
    command = container_of(service)["command"]
    with container.running(command, environment=variables, mounts=mounts, log=log) as process:
        await until_ready(port, process, log)
        source = container.output("cat", "/app/functions/main.py")
    assert source == (folder / "app.py").read_text()


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def variables_of(container: Document) -> dict[str, str]:
    """The manifest's environment; what comes from the Secret is set by the test."""
    return {entry["name"]: entry["value"].replace(MOUNTED, SECRETS) for entry in container["env"] if "value" in entry}


def secret_folder(tmp_path: Path, *names: str, content: str | None = None) -> Path:
    """Files as the kubelet mounts them: readable by the pod's user."""
    folder = tmp_path / f"secret-{names[0]}"
    folder.mkdir()
    for name in names:
        file = folder / name
        file.write_text(content or (TOKEN if name == "token" else f"{TOKEN}-{name}"))
        file.chmod(0o444)
    folder.chmod(0o755)
    return folder


def kubeconfig_of(address: str) -> Document:
    return {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://{address}"}}],
        "users": [{"name": "test", "user": {"token": "the-service-account"}}],
    }


async def until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for ``/readyz``."""
    until = time.monotonic() + START_TIMEOUT_S
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        while process.poll() is None and time.monotonic() < until:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
    raise AssertionError(f"it was not ready:\n{await asyncio.to_thread(log.read_text)}")
