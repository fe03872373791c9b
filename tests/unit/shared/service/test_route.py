"""One stage's route: its answer, its counters and its lines in the log."""

import logging

import pytest

from shared.contracts.call import StageReply
from tests.unit.shared.service.stage_fakes import (
    EchoOutputs,
    World,
    called,
    echo_app,
    echo_body,
)


async def test_a_call_is_answered_with_its_reply(world: World) -> None:
    async with called(echo_app(world)) as client:
        answer = await client.post("/v1/reward", json=echo_body(**{"inputs.text": "hi"}))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert StageReply[EchoOutputs].model_validate_json(answer.content).outputs.text == "hi"


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
