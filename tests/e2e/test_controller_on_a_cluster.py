"""The controller's own process against an API server and an ingress over real HTTP, as in its pod."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
import yaml

from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.local.redis_server import RedisServer, free_port
from scripts.local_stack import REPOSITORY
from tests.fakes.kubernetes.adapter import EVERY_STAGE, LARGE
from tests.fakes.kubernetes.announcing import Announcing
from tests.fakes.kubernetes.api_server import NAMESPACE, REVISIONS, ApiServer, Fault
from tests.fakes.kubernetes.asgi import served
from tests.fakes.kubernetes.knative import Knative, knative
from tests.fakes.kubernetes.services import base_service
from tests.simulation.knative.paced_pods import PacedPods

SERVICE_ACCOUNT, FUNCTIONS = "the-service-account", "the-token-of-the-functions"
USER, ADMIN = "the-token-of-the-api-users", "the-token-of-the-api-admins"
HASTY = replace(KNATIVE, scale_to_zero_grace_period_s=0.5)


@dataclass
class Cluster:
    """A cluster's addresses and what a controller is told of them."""

    knative: Knative
    redis: RedisServer
    environment: dict[str, str]
    url: str = ""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    redis = RedisServer(tmp_path / "redis", port=free_port())
    await redis.start()
    api = ApiServer(token=SERVICE_ACCOUNT)
    announcing = Announcing(EVERY_STAGE)
    pods = PacedPods(start_s=0.1, machine=LARGE)
    services = [base_service("rollout", window="6s")]
    options = {"clock": time.time, "pods": pods, "api": api, "defaults": HASTY, "drain_s": 0.1}
    try:
        async with (
            knative(announcing.answers(), services, **options) as fake,
            served(api) as api_address,
            served(fake.ingress) as ingress,
        ):
            yield Cluster(fake, redis, environment(tmp_path, redis, f"http://{api_address}", f"http://{ingress}"))
    finally:
        await redis.stop()


def environment(folder: Path, redis: RedisServer, api: str, ingress: str) -> dict[str, str]:
    """What a pod of the controller has in its environment, and its files."""
    kubeconfig = {
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me", "namespace": NAMESPACE}}],
        "clusters": [{"name": "it", "cluster": {"server": api}}],
        "users": [{"name": "me", "user": {"tokenFile": "account"}}],
    }
    files = {
        "kubeconfig": yaml.safe_dump(kubeconfig),
        "account": SERVICE_ACCOUNT,
        "token": FUNCTIONS,
        "api-token": USER,
        "admin-token": ADMIN,
    }
    for name, content in files.items():
        (folder / name).write_text(content)
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "RLHFLESS_PLATFORM": "knative",
        "RLHFLESS_STATE_DIR": str(folder / "state"),
        "RLHFLESS_API_PORT": "0",
        "RLHFLESS_API_TOKEN_FILE": str(folder / "api-token"),
        "RLHFLESS_ADMIN_TOKEN_FILE": str(folder / "admin-token"),
        "RLHFLESS_TOKEN_FILE": str(folder / "token"),
        "RLHFLESS_BLOB_URL": "redis://",
        "RLHFLESS_INGRESS_URL": ingress,
        "KUBECONFIG": str(folder / "kubeconfig"),
        "REDIS_URL": redis.url,
        "REDIS_PASSWORD": redis.password or "",
        "HOSTNAME": "controller-0",
    }


@asynccontextmanager
async def controller(cluster: Cluster, token: str) -> AsyncIterator[httpx.AsyncClient]:
    """The process, and a client of its API; the process is ended by SIGTERM, as a pod is."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "controller.main", env=cluster.environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        assert "rlhfless is up at http://" in line, line
        url = line.split()[4]
        async with httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {token}"}, trust_env=False
        ) as client:
            yield client
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await process.wait() == 0


async def ended(environment: dict[str, str]) -> tuple[int, str]:
    """Exit status of a process that does not start, and the line that it leaves beside its log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controller.main"), env=environment, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    [line] = [line for line in errors.decode().splitlines() if not line.startswith("{")]
    assert process.returncode is not None
    return process.returncode, line


async def ready(client: httpx.AsyncClient) -> None:
    """Wait until the controller says that it can work."""
    async with asyncio.timeout(60):
        while True:
            if (await client.get("/readyz")).status_code == 200:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_it_serves_looks_changes_and_ends(cluster: Cluster) -> None:
    async with controller(cluster, USER) as client:
        await ready(client)
        assert (await client.get("/v1/functions", headers={"authorization": ""})).status_code == 401
        [function] = (await client.get("/v1/functions")).json()["functions"]
        assert (function["name"], function["revision"], function["ready"]) == ("rollout", "rollout-00001", True)
        wanted = {"image": "there/function:2"}
        assert (await client.put("/v1/functions/rollout", json=wanted)).status_code == 403
        as_admin = {"authorization": f"Bearer {ADMIN}"}
        assert (await client.put("/v1/functions/rollout", json=wanted, headers=as_admin)).status_code == 202
        async with asyncio.timeout(90):
            while True:
                function = (await client.get("/v1/functions/rollout")).json()
                if function["change"]["state"] in ("done", "failed"):
                    break
                await asyncio.sleep(0.2)
        assert function["change"]["state"] == "done", function["change"]["reason"]
        assert (function["revision"], function["image"]) == ("rollout-00002", "there/function:2")
        replicas = (await client.get("/v1/replicas?ended=true")).json()
        assert replicas["platform"] == "knative"
        assert {replica["revision"] for replica in replicas["replicas"]} >= {"rollout-00002"}
    for name in ("rollout-00001", "rollout-00002"):
        found = cluster.knative.api.store.get(REVISIONS, name)
        assert found is not None
        assert "rlhfless.dev/hold-until" not in found["metadata"]["annotations"]


@pytest.mark.slow
async def test_it_waits_for_a_cluster_that_is_not_there_yet(cluster: Cluster) -> None:
    await cluster.redis.stop()
    api = cluster.knative.api
    api.faults = [Fault(status=503, verb="list", plural="services")] * 100
    async with controller(cluster, USER) as client:
        assert (await client.get("/healthz")).status_code == 200
        unready = await client.get("/readyz")
        assert unready.status_code == 503
        assert "the platform of the functions does not answer" in unready.text
        assert "Redis does not answer" in unready.text
        api.faults = []
        await cluster.redis.start()
        await ready(client)
        assert (await client.get("/v1/runs")).status_code == 200


@pytest.mark.slow
async def test_it_ends_where_it_may_not_look_at_the_functions(cluster: Cluster) -> None:
    cluster.knative.api.forbidden = {("list", "services")}
    status, line = await ended(cluster.environment)
    assert status == 1
    assert "may not list services.serving.knative.dev" in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"RLHFLESS_API_HOST": "0.0.0.0", "RLHFLESS_API_TOKEN_FILE": "", "RLHFLESS_ADMIN_TOKEN_FILE": ""},
            "opens the API",
        ),
        ({"RLHFLESS_TOKEN_FILE": ""}, "RLHFLESS_TOKEN_FILE is not set"),
        ({"KUBECONFIG": "/nowhere"}, "the kubeconfig /nowhere cannot be read"),
        ({"RLHFLESS_ADMIN_TOKEN_FILE": "{api-token}"}, "has the API's own token"),
        ({"RLHFLESS_API_TOKEN_FILE": "{empty}"}, "holds no token"),
    ],
)
async def test_it_says_in_one_line_why_it_does_not_start(
    cluster: Cluster, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    named = {name: value.replace("{", f"{tmp_path}/").replace("}", "") for name, value in changes.items()}
    status, line = await ended({**cluster.environment, **named})
    assert line.startswith("error: ")
    assert said in line
    assert status != 0


async def test_the_sweep_of_a_cronjob(cluster: Cluster) -> None:
    found = cluster.knative.api.store.get(REVISIONS, "rollout-00001")
    assert found is not None
    overdue = {"rlhfless.dev/hold-until": "2020-01-01T00:00:00Z", "rlhfless.dev/min-scale-before": "0"}
    cluster.knative.api.on_patch = lambda kind, name: None
    found["metadata"]["annotations"] |= {**overdue, "autoscaling.knative.dev/min-scale": "4"}
    cluster.knative._committed(REVISIONS, cluster.knative.api.store.get(REVISIONS, "rollout-00001") or {}, found)
    cluster.knative.show()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controller.platforms.knative.sweep"),
        env=cluster.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        said, _ = await process.communicate()
    assert said.decode() == "lowered 1 overdue minima\n"
    swept = cluster.knative.api.store.get(REVISIONS, "rollout-00001")
    assert swept is not None
    assert swept["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "0"
