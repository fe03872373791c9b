"""Plans, traces and expectations over HTTP, with what may be wrong with a request."""

import json
from dataclasses import replace

import httpx
import pytest

from controller.api.models import ApiProblem
from controller.runs.plan_records import as_json
from controller.runs.state import RunState
from tests.fakes.planned import plan_record
from tests.unit.controller.api.fake_service import CONFIG, FakeService
from tests.unit.controller.api.serving import called, served


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.add("run-0", RunState.RUNNING, total_steps=4)
    service.plans["run-0"] = {0: plan_record(step=0, done=True), 2: plan_record(step=2)}
    service.traces["run-0"] = {0: b'{"step":0}\n', 1: b'{"step":1}\n{"step":1}\n', 2: b'{"step":2}\n'}
    return service


async def test_the_plan_of_a_step_is_shown_while_it_runs_and_after(service: FakeService) -> None:
    async with called(service) as client:
        done = (await client.get("/v1/runs/run-0/steps/0/plan")).json()
        running = (await client.get("/v1/runs/run-0/steps/2/plan")).json()
        latest = (await client.get("/v1/runs/run-0/plan")).json()
    assert done == json.loads(json.dumps(as_json(service.plans["run-0"][0])))
    assert (done["state"], done["rounds"][0]["measured"]["time_error"]) == ("done", -0.25)
    assert (running["state"], running["rounds"][0]["measured"]) == ("running", None)
    assert latest == running
    assert running["rounds"][0]["expected"]["time_s"] > 0


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/runs/run-0/steps/1/plan", 404, "step_unknown"),
        ("/v1/runs/run-0/steps/3/plan", 409, "not_planned_yet"),
        ("/v1/runs/run-0/steps/9007199254740991/plan", 409, "not_planned_yet"),
        ("/v1/runs/run-0/steps/9007199254740992/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/" + "9" * 400 + "/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/" + "9" * 5000 + "/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/-1/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/1.5/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/x/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps/%00/plan", 422, "invalid_request"),
        ("/v1/runs/run-0/steps//plan", 404, "not_found"),
        ("/v1/runs/run-9/steps/0/plan", 404, "run_unknown"),
        ("/v1/runs/run-9/plan", 404, "run_unknown"),
        ("/v1/runs/RUN%2F..%2F0/plan", 404, "not_found"),
        ("/v1/runs/RUN_0/plan", 404, "run_unknown"),
        ("/v1/runs/run-9/trace", 404, "run_unknown"),
        ("/v1/runs/" + "a" * 500 + "/trace", 404, "run_unknown"),
        ("/v1/runs/%F0%9F%92%A9/trace", 404, "run_unknown"),
        ("/v1/runs/run-0/trace?from_step=-1", 422, "invalid_request"),
        ("/v1/runs/run-0/trace?from_step=" + "9" * 30, 422, "invalid_request"),
        ("/v1/runs/run-0/trace?from_step=x", 422, "invalid_request"),
    ],
)
async def test_what_cannot_be_shown_is_a_typed_problem(service: FakeService, path: str, status: int, code: str) -> None:
    async with called(service) as client:
        response = await client.get(path)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["content-type"] == "application/problem+json"
    assert ApiProblem.model_validate_json(response.content).message


async def test_a_run_that_has_planned_nothing_says_so(service: FakeService) -> None:
    service.plans["run-0"].clear()
    async with called(service) as client:
        for path in ("/v1/runs/run-0/plan", "/v1/runs/run-0/steps/0/plan"):
            response = await client.get(path)
            assert (response.status_code, response.json()["code"]) == (409, "not_planned_yet")


async def test_numbers_that_are_not_finite_are_left_out(service: FakeService) -> None:
    record = service.plans["run-0"][0]
    broken = replace(record.holding[0], predicted_saved_s=float("inf"))
    service.plans["run-0"][0] = replace(record, holding=(broken,))
    async with called(service) as client:
        response = await client.get("/v1/runs/run-0/steps/0/plan")
    assert response.json()["holding"][0]["predicted_saved_s"] is None


async def test_a_trace_is_streamed_as_lines(service: FakeService) -> None:
    async with served(service) as url, httpx.AsyncClient(base_url=url) as client:
        response = await client.get("/v1/runs/run-0/trace")
        later = await client.get("/v1/runs/run-0/trace", params={"from_step": 2})
        none = await client.get("/v1/runs/run-0/trace", params={"from_step": 3})
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["step"] for line in response.text.splitlines()] == [0, 1, 1, 2]
    assert [json.loads(line)["step"] for line in later.text.splitlines()] == [2]
    assert (none.status_code, none.text) == (200, "")


async def test_what_a_config_would_take_is_said_and_nothing_is_started(service: FakeService) -> None:
    async with called(service) as client:
        plain = await client.post("/v1/plans", json=CONFIG)
        more = await client.post("/v1/plans", json={"config": CONFIG, "overrides": ["rollout.n=16"]})
    assert plain.status_code == 200
    assert plain.json()["num_steps"] == 4
    assert more.json()["tokens"] == 2 * plain.json()["tokens"]
    assert any("stated defaults" in line for line in plain.json()["assumptions"])
    assert list(service.records) == ["run-0"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 422, "not_json"),
        (b"[]", 422, "not_json"),
        (b"{}", 422, "config_invalid"),
        (json.dumps(CONFIG | {"schedule.scaling.lambda": -1}).encode(), 422, "config_invalid"),
        (json.dumps(CONFIG | {"schedule.scaling.lambda": 10**400}).encode(), 422, "not_json"),
        (json.dumps({"config": CONFIG, "overrides": ["schedule.length_window=0"]}).encode(), 422, "config_invalid"),
    ],
)
async def test_a_config_that_cannot_run_has_no_expectation(
    service: FakeService, body: bytes, status: int, code: str
) -> None:
    async with called(service) as client:
        response = await client.post("/v1/plans", content=body)
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_the_token_is_asked_for(service: FakeService) -> None:
    async with called(service, token="secret") as client:
        for path in ("/v1/runs/run-0/plan", "/v1/runs/run-0/steps/0/plan", "/v1/runs/run-0/trace"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post("/v1/plans", json=CONFIG)).status_code == 401
