"""Who may call, and that nothing is read of those who may not."""

from typing import Any

import pytest

from shared.contracts.errors import Problem
from tests.unit.shared.service.stage_fakes import (
    TOKEN,
    EchoHandler,
    World,
    called,
    echo_app,
    echo_body,
)


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
