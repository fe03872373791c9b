"""From a body to a call: whatever it holds, it is served or refused, and the refusal names the field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.errors import Problem
from shared.service.request import MAX_CALL_BYTES
from tests.unit.shared.service.stage_fakes import (
    EchoHandler,
    World,
    called,
    echo_app,
    echo_body,
)

NESTED = '{"key":' + "[" * 100_000


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats()
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


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


def places(body: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all fields of a body."""
    found = []
    for name, value in body.items():
        found.append((*path, name))
        if isinstance(value, dict):
            found += places(value, (*path, name))
    return found


@given(place=st.sampled_from(places(echo_body())), value=ANY_JSON)
async def test_any_value_in_any_field(place: tuple[str, ...], value: Any) -> None:
    body = echo_body(**{".".join(place): value})
    async with called(echo_app(World())) as client:
        answer = await client.post("/v1/reward", content=json.dumps(body))
    assert answer.status_code in (200, 409, 422), answer.text


@given(body=ANY_JSON.map(json.dumps).map(str.encode) | st.binary(max_size=50))
async def test_any_body(body: bytes) -> None:
    async with called(echo_app(World())) as client:
        answer = await client.post("/v1/reward", content=body)
    assert answer.status_code == 422, answer.text
