from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from controller.api.app import make_api
from controller.platforms.base import ReplicaLife
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called, swaps_of


def runs_by_state(text: str) -> dict[str, float]:
    [family] = [family for family in text_string_to_metric_families(text) if family.name == "rlhfless_runs"]
    return {sample.labels["state"]: sample.value for sample in family.samples}


async def test_functions_are_listed_with_their_replicas() -> None:
    async with called(FakeService()) as client:
        [function] = (await client.get("/v1/functions")).json()["functions"]
    assert (function["name"], function["stages"], function["num_ready"]) == ("rollout", ["rollout"], 2)
    assert function["revisions"] == [
        {"name": "rollout-00001", "percent": 100, "tags": [], "ready": True, "num_replicas": 2}
    ]


def life(name: str, **more: Any) -> ReplicaLife:
    return ReplicaLife(
        instance=InstanceId(name),
        function="rollout",
        stages=(Stage.ROLLOUT,),
        revision="rollout-00001",
        num_cpus=1.0,
        num_gpus=0,
        scheduled_at=40.0,
        **more,
    )


async def test_replicas_are_listed_with_their_state_and_cost() -> None:
    service = FakeService()
    service.lives = [
        life("a", started_at=50.0, ended_at=60.0, reason="scaled down"),
        life("b", started_at=75.0, ready_at=80.0, num_in_flight=1),
        life("c", reason="unschedulable: 3 of 2 cpus"),
    ]
    async with called(service) as client:
        living = (await client.get("/v1/replicas")).json()
        every = (await client.get("/v1/replicas", params={"ended": True})).json()
    assert [(replica["instance"], replica["state"]) for replica in living["replicas"]] == [
        ("b", "ready"),
        ("c", "pending"),
    ]
    assert [replica["state"] for replica in every["replicas"]] == ["ended", "ready", "pending"]
    ready, pending = living["replicas"]
    assert (ready["held_s"], ready["usd"], ready["num_in_flight"]) == (25.0, 0.25, 1)
    assert (pending["started_at"], pending["usd"], pending["reason"]) == (None, 0.0, "unschedulable: 3 of 2 cpus")
    [cost] = living["costs"]
    assert cost == {"function": "rollout", "num_replicas": 2, "cpu_seconds": 35.0, "gpu_seconds": 0.0, "usd": 0.35}
    assert (living["platform"], living["since"], living["now"]) == ("simulated", 0.0, 100.0)
    assert every["costs"] == living["costs"]


async def test_a_platform_without_replicas_has_cost_nothing() -> None:
    async with called(FakeService()) as client:
        nothing = (await client.get("/v1/replicas")).json()
    assert (nothing["replicas"], nothing["costs"]) == ([], [])


async def test_health_does_not_ask_the_service() -> None:
    service = FakeService()
    service.failure = StoreUnavailable("Redis did not answer")
    async with called(service) as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_readiness_says_what_is_missing() -> None:
    service = FakeService()
    async with called(service) as client:
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        service.reasons = ["Redis does not answer"]
        response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["code"] == "not_ready"
    assert response.json()["problems"][0]["reason"] == "Redis does not answer"


async def test_a_controller_whose_platform_does_not_answer_yet_is_not_ready() -> None:
    service, missing = FakeService(), ["the cluster is not there yet"]
    api = make_api(service, token=None, swaps=swaps_of(service), waiting_for=lambda: missing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://controller") as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert [problem["reason"] for problem in response.json()["problems"]] == missing
        assert (await client.get("/healthz")).status_code == 200
        missing.clear()
        assert (await client.get("/readyz")).status_code == 200


async def test_metrics_count_the_runs_by_state() -> None:
    service = FakeService()
    service.add("run-0", RunState.RUNNING)
    service.add("run-1", RunState.QUEUED)
    service.add("run-2", RunState.QUEUED)
    async with called(service) as client:
        response = await client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        assert runs_by_state(response.text) == dict.fromkeys(RunState, 0) | {"running": 1, "queued": 2}
        service.failure = StoreUnavailable("Redis did not answer")
        response = await client.get("/metrics")
    assert response.status_code == 200
    assert runs_by_state(response.text) == {}
