"""From errors to HTTP: statuses, headers, and what a caller is not told."""

import logging

import pytest

from shared.contracts.call import StageCall
from shared.contracts.errors import STAGE_ERRORS, Problem, StageError
from shared.service.handler import CallContext, Outcome
from tests.unit.shared.service.stage_fakes import (
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
