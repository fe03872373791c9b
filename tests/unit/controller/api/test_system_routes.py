from prometheus_client.parser import text_string_to_metric_families

from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called


def runs_by_state(text: str) -> dict[str, float]:
    [family] = [family for family in text_string_to_metric_families(text) if family.name == "rlhfless_runs"]
    return {sample.labels["state"]: sample.value for sample in family.samples}


async def test_functions_are_listed_with_their_replicas() -> None:
    async with called(FakeService()) as client:
        [function] = (await client.get("/v1/functions")).json()["functions"]
    assert (function["name"], function["stages"], function["num_ready"]) == ("rollout", ["rollout"], 2)


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
