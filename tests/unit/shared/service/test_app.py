"""A function over HTTP: routes, refusals and headers, as a client sees them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from shared.contracts.call import StageCall, StageReply
from shared.contracts.errors import STAGE_ERRORS, Problem, StageError
from shared.contracts.info import CONTRACT_VERSION
from shared.service.app import make_app, serve_stages
from shared.service.handler import CallContext, Outcome
from shared.service.request import MAX_CALL_BYTES
from shared.service.settings import FunctionSettings, SettingsInvalid
from tests.unit.shared.service.stage_fakes import (
    TOKEN,
    EchoHandler,
    EchoInputs,
    EchoOutputs,
    World,
    called,
    echo_app,
    echo_body,
    echo_call,
)

PLATFORM_STATUSES = {502, 503, 504}


@pytest.fixture
def world() -> World:
    return World()


async def test_a_call_is_answered_with_its_reply(world: World) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.post("/v1/reward", json=echo_body(**{"inputs.text": "hi"}))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert StageReply[EchoOutputs].model_validate_json(answer.content).outputs.text == "hi"


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_health_needs_no_token(world: World, path: str) -> None:
    async with called(echo_app(world), token=None) as client:
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"authorization": ""},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Basic {TOKEN}"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/reward"),
        ("GET", "/v1/info"),
        ("GET", "/metrics"),
        ("GET", "/unknown"),
        ("GET", "/docs"),
        ("GET", "/healthz/"),
        ("GET", "//healthz"),
    ],
)
async def test_everything_else_does(world: World, method: str, path: str, header: dict[str, str]) -> None:
    handler = EchoHandler()
    async with called(echo_app(world, handler), token=None) as client:
        answer = await client.request(method, path, json=echo_body(), headers=header)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert Problem.model_validate_json(answer.content).code == "unauthenticated"
    assert handler.num_calls == 0


async def test_a_scheme_is_recognised_in_any_case(world: World) -> None:
    async with called(echo_app(world), token=None) as client:
        answer = await client.get("/v1/info", headers={"authorization": f"bearer {TOKEN}"})
    assert answer.status_code == 200


async def test_the_body_of_a_stranger_is_not_read(world: World) -> None:
    received: list[str] = []
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        received.append("read")
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/reward", "headers": [], "query_string": b""}
    await echo_app(world)(scope, receive, send)
    assert sent[0]["status"] == 401
    assert received == []


async def test_information_names_what_runs_here(world: World) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.get("/v1/info")
    assert answer.json() == {
        "stages": ["reward"],
        "contract_version": CONTRACT_VERSION,
        "instance": "echo-1",
        "revision": "echo-00001",
    }


async def test_calls_are_counted_by_status(world: World) -> None:
    async with called(echo_app(world)) as client:
        before = (await client.get("/metrics")).text
        await client.post("/v1/reward", json=echo_body())
        await client.post("/v1/reward", json={})
        after = (await client.get("/metrics")).text
    for status, added in (("200", 1), ("422", 1)):
        assert _count(after, status) == _count(before, status) + added
    assert 'rlhfless_stage_calls_in_flight{stage="reward"} 0.0' in after


def _count(text: str, status: str) -> float:
    line = next((line for line in text.splitlines() if f'stage="reward",status="{status}"' in line), " 0")
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v1/learner", 404),
        ("GET", "/v1/reward", 405),
        ("GET", "/openapi.json", 404),
        ("GET", "/docs", 404),
    ],
)
async def test_unknown_routes_are_problems(world: World, method: str, path: str, status: int) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.retryable) == (f"http_{status}", False)
    assert f"{method} {path}" in problem.message


NESTED = '{"key":' + "[" * 100_000


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"\xff\xfe", "body"),
        (b"null", "body"),
        (b"[1]", "body"),
        (NESTED.encode(), "body"),
        (b"{}", "key"),
        (json.dumps(echo_body(**{"inputs.text": 1})).encode(), "inputs.text"),
        (json.dumps(echo_body(**{"inputs.txt": "x"})).encode(), "inputs.txt"),
        (json.dumps(echo_body(**{"key.step": -1})).encode(), "key.step"),
        (json.dumps(echo_body(**{"key.run": "../etc"})).encode(), "key.run"),
        (json.dumps(echo_body(**{"key.stage": "rollout"})).encode(), "key.stage"),
        (json.dumps(echo_body(**{"key.stage": "cook"})).encode(), "key.stage"),
        (json.dumps(echo_body(deadline_at=float("nan"))).encode(), "deadline_at"),
        (json.dumps(echo_body(deadline_at=float("inf"))).encode(), "deadline_at"),
        (json.dumps(echo_body()).replace("4000000000.0", "1e999").encode(), "deadline_at"),
        (json.dumps(echo_body(**{"inputs.number": float("-inf")})).encode(), "inputs.number"),
        (json.dumps(echo_body(**{"inputs.numbers": {"a": float("nan")}})).encode(), "inputs.numbers.a"),
        (json.dumps(echo_body()).replace('"fence": 0', '"fence": 1' + "0" * 5000).encode(), "body"),
        (json.dumps(echo_body(**{"inputs.text": "x" * MAX_CALL_BYTES})).encode(), "body"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[-40:]),
)
async def test_bad_bodies_are_refused_with_the_field(world: World, body: bytes, named: str) -> None:
    handler = EchoHandler()
    async with called(echo_app(world, handler)) as client:
        answer = await client.post("/v1/reward", content=body)
    assert answer.status_code == 422
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.retryable) == ("invalid_input", False)
    assert problem.message.startswith(f"{named}: ")
    assert handler.num_calls == 0


async def test_many_problems_are_cut_short(world: World) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.post("/v1/reward", json=echo_body(**{f"wrong{index}": 1 for index in range(9)}))
    message = Problem.model_validate_json(answer.content).message
    assert message.count("wrong") == 5
    assert message.endswith("(and 4 more)")


def test_no_error_of_a_function_looks_like_the_platforms() -> None:
    assert {error.status for error in STAGE_ERRORS.values()}.isdisjoint(PLATFORM_STATUSES)


@pytest.mark.parametrize("error_type", STAGE_ERRORS.values(), ids=lambda error: error.code)
async def test_a_stage_error_becomes_its_status_and_problem(world: World, error_type: type[StageError]) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        raise error_type("what to do", row_uid="row-7")

    async with called(echo_app(world, EchoHandler(work))) as client:
        answer = await client.post("/v1/reward", json=echo_body())
    assert answer.status_code == error_type.status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.message) == (error_type.code, "what to do")
    assert (problem.retryable, problem.details) == (error_type.retryable, {"row_uid": "row-7"})


@pytest.mark.parametrize("outputs", ["raises", "answers outside its contract"])
async def test_a_defect_tells_its_log_everything_and_its_caller_nothing(
    world: World, outputs: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        if outputs == "raises":
            raise ZeroDivisionError("secret of the inside")
        return Outcome(outputs="secret of the inside")  # type: ignore[arg-type]  # what a defect does

    with caplog.at_level(logging.INFO):
        async with called(echo_app(world, EchoHandler(work))) as client:
            answer = await client.post("/v1/reward", json=echo_body())
    assert answer.status_code == 500
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.retryable) == ("internal_error", True)
    assert "secret" not in answer.text
    assert "secret of the inside" in caplog.text


@pytest.mark.parametrize(
    ("claimed_for_s", "header", "retry_after_s"),
    [(60.0, "1", 1.0), (0.25, "1", 0.25), (1.0, "1", 1.0)],
)
async def test_a_busy_key_says_when_to_come_back(
    world: World, claimed_for_s: float, header: str, retry_after_s: float
) -> None:
    call = echo_call()
    await world.store.calls.claim(call.key, digest=call.digest(), owner="other", fence=0, ttl_s=claimed_for_s)
    async with called(echo_app(world)) as client:
        answer = await client.post("/v1/reward", json=echo_body())
    assert (answer.status_code, answer.headers["retry-after"]) == (425, header)
    problem = Problem.model_validate_json(answer.content)
    assert (problem.code, problem.retryable, problem.details) == ("call_busy", True, {})
    assert problem.retry_after_s == pytest.approx(retry_after_s)


async def test_the_log_has_a_line_for_every_call_with_what_a_reader_filters_by(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="shared.service"):
        async with called(echo_app(world)) as client:
            await client.post("/v1/reward", json=echo_body())
            await client.post("/v1/reward", json=echo_body(**{"inputs.text": "other"}))
            await client.post("/v1/reward", json={})
    answered, conflict, refused = (vars(record) for record in caplog.records)
    assert (answered["run"], answered["step"], answered["stage"]) == ("run-1", 3, "reward")
    assert (conflict["run"], conflict["code"]) == ("run-1", "call_conflict")
    assert (refused["stage"], refused["code"]) == ("reward", "invalid_input")


async def test_the_end_of_a_process_closes_all_it_holds(world: World) -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("store")

    class Stubborn(EchoHandler):
        async def close(self) -> None:
            raise OSError("cannot close")

    replica, last = world.replica(), EchoHandler()
    app = serve_stages([last, Stubborn()], replica, token=TOKEN, close=close)
    with pytest.raises(OSError, match="cannot close"):
        async with app.router.lifespan_context(app):
            assert not closed
    assert (closed, last.closed) == (["store"], True)
    with pytest.raises(RuntimeError):
        replica.executor.submit(print)


@pytest.mark.parametrize(
    ("field", "value", "variable"),
    [
        ("redis_url", "http://:hunter2@redis", "REDIS_URL"),
        ("redis_url", "redis://:hunter2@redis:not-a-port/0", "REDIS_URL"),
        ("blob_url", "s3://key:hunter2@bucket", "RLHFLESS_BLOB_URL"),
        ("blob_url", "file://hunter2/folder", "RLHFLESS_BLOB_URL"),
    ],
)
def test_urls_that_name_no_store_are_refused_without_repeating_them(
    tmp_path: Path, field: str, value: str, variable: str
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    settings = FunctionSettings.from_environment(
        {"RLHFLESS_STAGES": "reward", "RLHFLESS_TOKEN_FILE": str(token_file), variable: value}
    )
    assert getattr(settings, field) == value
    with pytest.raises(SettingsInvalid) as refused:
        make_app(settings, [], started_at=0.0)
    assert str(refused.value).startswith(variable)
    assert "hunter2" not in str(refused.value)
