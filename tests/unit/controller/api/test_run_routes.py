import json
from typing import Any

import httpx
import pytest

from controller.runs.config.load import load_config, resolved
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from tests.unit.controller.api.fake_service import CONFIG, NUM_ROWS, FakeService
from tests.unit.controller.api.serving import called


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
async def client(service: FakeService):
    async with called(service) as client:
        yield client


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] == code
    assert problem["message"]
    assert set(problem) == {"code", "message", "retryable", "retry_after_s", "details", "problems"}
    return problem


async def test_a_config_starts_a_run(client: httpx.AsyncClient, service: FakeService) -> None:
    response = await client.post("/v1/runs", json=CONFIG)
    assert response.status_code == 201
    run = response.json()
    assert response.headers["location"] == f"/v1/runs/{run['id']}"
    assert run["state"] == "queued"
    assert run["config"] == resolved(load_config(CONFIG))
    assert list(service.records) == [run["id"]]
    assert (await client.get(response.headers["location"])).json() == run


async def test_overrides_go_on_top_of_the_config(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/runs", json={"config": CONFIG, "overrides": ["rollout.n=16"]})
    assert response.json()["config"]["rollout"]["n"] == 16


async def test_a_dry_run_starts_nothing(client: httpx.AsyncClient, service: FakeService) -> None:
    response = await client.post("/v1/runs?dry_run=true", json=CONFIG)
    assert response.status_code == 200
    assert response.json() == {
        "config": resolved(load_config(CONFIG)),
        "notes": ["train.jsonl: prompt from question"],
        "num_rows": NUM_ROWS,
        "num_heldout_rows": 10,
        "total_steps": 4,
    }
    assert not service.records


async def test_what_looks_like_a_secret_is_used_and_not_shown(client: httpx.AsyncClient, service: FakeService) -> None:
    key = "hf_" + "a1B2" * 6
    config = CONFIG | {"data": CONFIG["data"] | {"prompt_key": key}}
    started = await client.post("/v1/runs", json=config)
    run = started.json()["id"]
    assert service.records[run].config["data"]["prompt_key"] == key
    dry = await client.post("/v1/runs?dry_run=true", json=config)
    for answer in (started, dry, await client.get(f"/v1/runs/{run}"), await client.get("/v1/runs")):
        assert answer.is_success
        assert key not in answer.text
    assert dry.json()["config"]["data"]["prompt_key"] == "***"


async def test_the_same_request_again_returns_the_same_run(client: httpx.AsyncClient, service: FakeService) -> None:
    headers = {"Idempotency-Key": "try-1"}
    first = await client.post("/v1/runs", json=CONFIG, headers=headers)
    again = await client.post("/v1/runs", json=CONFIG, headers=headers)
    assert again.json()["id"] == first.json()["id"]
    other = await client.post("/v1/runs", json={"config": CONFIG, "overrides": ["rollout.n=4"]}, headers=headers)
    problem = assert_problem(other, 409, "idempotency_conflict")
    assert problem["details"] == {"run": first.json()["id"]}
    assert len(service.records) == 1
    assert (await client.post("/v1/runs", json=CONFIG)).json()["id"] != first.json()["id"]


async def test_a_bad_config_says_field_reason_and_suggestion(client: httpx.AsyncClient, service: FakeService) -> None:
    content = {"config": {**CONFIG, "rollout": {"m": 8}}, "overrides": ["rollout.n=1"]}
    problem = assert_problem(await client.post("/v1/runs", json=content), 422, "config_invalid")
    assert {fault["field"] for fault in problem["problems"]} == {"rollout.m", "rollout.n"}
    assert all(fault["reason"] and fault["suggestion"] for fault in problem["problems"])
    assert "nothing was started" in problem["message"]
    assert not service.records


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{}", {"Content-Type": "text/yaml"}, 415, "unsupported_media_type"),
        (b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"),
        (b"rollout: {n: 8}", {"Content-Type": "application/json"}, 422, "not_json"),
        (b"", {"Content-Type": "application/json"}, 422, "not_json"),
        (b'"' + b"x" * 5 * 2**20, {"Content-Type": "application/json"}, 413, "body_too_large"),
        (json.dumps(CONFIG).encode(), {"Idempotency-Key": "two words"}, 422, "invalid_request"),
        (json.dumps(CONFIG).encode(), {"Idempotency-Key": "x" * 201}, 422, "invalid_request"),
    ],
)
async def test_a_request_that_cannot_be_read_starts_nothing(
    client: httpx.AsyncClient, service: FakeService, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    assert_problem(await client.post("/v1/runs", content=content, headers=headers), status, code)
    assert not service.records


async def test_a_body_without_a_media_type_is_taken_for_json(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/runs", content=json.dumps(CONFIG).encode())).status_code == 201


async def test_runs_are_listed_newest_first(client: httpx.AsyncClient, service: FakeService) -> None:
    for number, state in enumerate([RunState.SUCCEEDED, RunState.FAILED, RunState.RUNNING]):
        service.add(f"run-{number}", state)

    async def ids(query: str) -> list[str]:
        return [run["id"] for run in (await client.get(f"/v1/runs{query}")).json()["runs"]]

    assert await ids("") == ["run-2", "run-1", "run-0"]
    assert await ids("?limit=1") == ["run-2"]
    assert await ids("?state=succeeded") == ["run-0"]
    assert await ids("?state=failed&state=running") == ["run-2", "run-1"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", f"limit={'9' * 5000}", "state=asleep"])
async def test_a_list_that_makes_no_sense_is_refused(client: httpx.AsyncClient, query: str) -> None:
    problem = assert_problem(await client.get(f"/v1/runs?{query}"), 422, "invalid_request")
    assert problem["problems"][0]["field"].startswith(f"query.{query.partition('=')[0]}")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/logs"),
        ("GET", "/metrics"),
        ("GET", "/summary"),
        ("GET", "/checkpoints"),
        ("GET", "/checkpoints/1/download"),
        ("POST", "/cancel"),
        ("POST", "/resume"),
        ("DELETE", ""),
    ],
)
async def test_an_unknown_run_is_404(client: httpx.AsyncClient, service: FakeService, method: str, path: str) -> None:
    assert_problem(await client.request(method, f"/v1/runs/missing{path}"), 404, "run_unknown")
    # A name that no run can have goes no further than the edge.
    service.failure = AssertionError("the service was asked")
    for name in ("UPPER", "a%00b", "%ff%fe", "a b", "a:b", "*", "x" * 300, "%E2%98%83"):
        assert_problem(await client.request(method, f"/v1/runs/{name}{path}"), 404, "run_unknown")


@pytest.mark.parametrize(
    "path", ["/v1/runs/..", "/v1/runs/%2e%2e/functions", "/v1/runs/a%2fb", "/v1/runs/", "//v1/runs"]
)
async def test_no_path_leads_out_of_the_routes(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_history_is_a_line_per_event_that_measured(client: httpx.AsyncClient, service: FakeService) -> None:
    service.add("run-0")
    for step in range(3):
        await service.emit("run-0", "step", {"step": step, "metrics": {"critic/score/mean": float("nan"), "x": 1.5}})
    answer = (await client.get("/v1/runs/run-0/metrics?after_step=1")).json()
    assert answer == {
        "run": "run-0",
        "history": [{"kind": "step", "step": 2, "metrics": {"critic/score/mean": None, "x": 1.5}, "time": 12.0}],
    }
    assert len((await client.get("/v1/runs/run-0/metrics")).json()["history"]) == 3
    assert_problem(await client.get("/v1/runs/run-0/metrics?after_step=-1"), 422, "invalid_request")


async def test_the_summary_is_what_the_run_came_to(client: httpx.AsyncClient, service: FakeService) -> None:
    service.add("run-0")
    await service.emit("run-0", "eval", {"step": 0, "accuracy": 0.25})
    await service.emit("run-0", "step", {"step": 0, "ledger": {}})
    await service.emit("run-0", "eval", {"step": 1, "accuracy": 0.75})
    await service.emit("run-0", "checkpoint", {"step": 1, "folder": "/c/global_step_1"})
    assert (await client.get("/v1/runs/run-0/summary")).json() == {
        "accuracy_before": 0.25,
        "accuracy_after": 0.75,
        "steps": 1,
        "train_s": 11.0,
        "ledger": {},
        "checkpoint": "/c/global_step_1",
    }


async def test_a_run_is_cancelled_resumed_and_deleted(client: httpx.AsyncClient, service: FakeService) -> None:
    service.add("run-0")
    assert_problem(await client.post("/v1/runs/run-0/resume"), 409, "run_conflict")
    assert_problem(await client.delete("/v1/runs/run-0"), 409, "run_conflict")
    cancelled = (await client.post("/v1/runs/run-0/cancel")).json()
    assert (cancelled["state"], cancelled["cancel_requested"]) == ("cancelled", True)
    assert_problem(await client.post("/v1/runs/run-0/cancel"), 409, "run_conflict")
    assert (await client.post("/v1/runs/run-0/resume")).json()["state"] == "queued"
    await client.post("/v1/runs/run-0/cancel")
    response = await client.delete("/v1/runs/run-0")
    assert (response.status_code, response.content) == (204, b"")
    assert_problem(await client.get("/v1/runs/run-0"), 404, "run_unknown")


async def test_the_wrong_method_and_path_answer_with_the_same_shape(client: httpx.AsyncClient) -> None:
    refused = await client.put("/v1/runs", json=CONFIG)
    assert_problem(refused, 405, "method_not_allowed")
    assert refused.headers["allow"]
    assert_problem(await client.get("/v2/runs"), 404, "not_found")


async def test_a_lost_store_is_a_503_that_says_when_to_come_back(
    client: httpx.AsyncClient, service: FakeService
) -> None:
    service.failure = StoreUnavailable("Redis did not answer")
    for method, path in (("POST", "/v1/runs"), ("GET", "/v1/runs"), ("GET", "/v1/runs/run-0")):
        response = await client.request(method, path, json=CONFIG)
        assert assert_problem(response, 503, "store_unavailable")["retryable"]
        assert response.headers["retry-after"]
