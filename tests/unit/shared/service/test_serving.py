"""A function behind a real socket: callers that leave, calls that end while the server does, a store that is lost."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from controller.platforms.local.redis_server import RedisServer
from shared.contracts.call import StageCall
from shared.contracts.errors import Problem
from shared.service.app import serve_stages
from shared.service.handler import CallContext, Outcome
from shared.store.base import Granted
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.unit.shared.service.stage_fakes import (
    TOKEN,
    EchoHandler,
    EchoInputs,
    EchoOutputs,
    World,
    echo_app,
    echo_body,
    echo_call,
    nothing_to_close,
)

HEADERS = {"authorization": f"Bearer {TOKEN}"}


class QuietServer(uvicorn.Server):
    """A server that leaves the process's signals alone."""

    def capture_signals(self) -> AbstractContextManager[None]:
        return nullcontext()


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The URL of a real server on this loop."""
    server = QuietServer(uvicorn.Config(app, port=0, log_level="warning", ws="none", timeout_graceful_shutdown=5))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or serving.done())
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to that")


class Slow:
    """A handler's work that goes on until it is stopped or let go."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.stopped_for = ""

    async def work(self, call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        self.started.set()
        await until(lambda: self.go_on.is_set() or context.stop.is_set())
        self.stopped_for = context.stop.reason
        context.stop.raise_if_set()
        return Outcome(outputs=EchoOutputs(text="done"))


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_call_stops_when_its_caller_leaves_and_its_key_is_free(exclusive: bool) -> None:
    world, slow = World(), Slow()
    async with served(echo_app(world, EchoHandler(slow.work, exclusive=exclusive))) as url:
        async with httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
            calling = asyncio.create_task(client.post("/v1/reward", json=echo_body()))
            await slow.started.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        await until(lambda: slow.stopped_for != "")
        call = echo_call()

        async def claim() -> object:
            return await world.store.calls.claim(call.key, digest=call.digest(), owner="next", fence=0, ttl_s=6.0)

        for _ in range(100):
            if isinstance(await claim(), Granted):
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the claim was not given back")
    assert slow.stopped_for == "the caller is gone"


async def test_a_caller_that_leaves_while_it_sends_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    world, handler = World(), EchoHandler()
    async with served(echo_app(world, handler)) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/reward HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 1000\r\n\r\n"
        writer.write(head.encode() + b"{")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        async with httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
            assert (await client.post("/v1/reward", json=echo_body())).status_code == 200
    assert handler.num_calls == 1
    assert [record.levelname for record in caplog.records if record.name.startswith("shared.service")] == []


async def test_a_body_in_pieces_and_calls_on_one_connection_are_no_reason_to_stop() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        body = json.dumps(echo_body()).encode()
        for start in range(0, len(body), 50):
            yield body[start : start + 50]
            await asyncio.sleep(0)

    async with (
        served(echo_app(World())) as url,
        httpx.AsyncClient(base_url=url, headers=HEADERS) as client,
    ):
        for _ in range(3):
            assert (await client.post("/v1/reward", content=pieces())).status_code == 200


async def test_a_body_that_is_too_long_is_refused_and_its_sender_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.service.request.MAX_CALL_BYTES", 1000)
    async with (
        served(echo_app(World())) as url,
        httpx.AsyncClient(base_url=url, headers=HEADERS) as client,
    ):
        answer = await client.post("/v1/reward", content=b"x" * 5_000_000)
    assert answer.status_code == 422
    assert "5000000 bytes, at most 1000" in Problem.model_validate_json(answer.content).message


async def test_two_calls_of_an_exclusive_stage_share_a_replica_in_turn() -> None:
    most = inside = 0

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        nonlocal most, inside
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        inside -= 1
        return Outcome(outputs=EchoOutputs(text=""))

    async with (
        served(echo_app(World(), EchoHandler(work, exclusive=True))) as url,
        httpx.AsyncClient(base_url=url, headers=HEADERS) as client,
    ):
        bodies = [echo_body(**{"key.shard": shard}) for shard in range(3)]
        answers = await asyncio.gather(*(client.post("/v1/reward", json=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * 3
    assert most == 1
    first, second, third = sorted(answer.json()["timings"]["queue_s"] for answer in answers)
    assert first < second < third


async def test_without_redis_calls_can_be_tried_again_and_health_is_well(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    await server.start()
    redis = RedisConnection(server.url, password=server.password, retry_for_s=0.2)
    world, slow = World(), Slow()
    app = serve_stages([EchoHandler(slow.work)], world.replica(redis_store(redis)), token=TOKEN, close=nothing_to_close)
    try:
        async with served(app) as url, httpx.AsyncClient(base_url=url, headers=HEADERS) as client:
            # Lost in the middle of a call, so that it cannot commit.
            calling = asyncio.create_task(client.post("/v1/reward", json=echo_body()))
            await slow.started.wait()
            await server.stop()
            slow.go_on.set()
            at_commit = await calling
            at_claim = await client.post("/v1/reward", json=echo_body(**{"key.shard": 1}))
            for answer in (at_commit, at_claim):
                problem = Problem.model_validate_json(answer.content)
                assert (answer.status_code, problem.code, problem.retryable) == (500, "store_unavailable", True)
                assert server.password not in answer.text
            assert (await client.get("/readyz")).status_code == 200
    finally:
        await redis.close()
        await server.stop()
