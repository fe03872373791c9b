"""A small stage to serve: its handler does what a test says, on a store in memory with a clock of the test's own."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx
from fastapi import FastAPI
from pydantic import Field

from shared.contracts.call import CallKey, StageCall
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire
from shared.service.app import serve_stages
from shared.service.handler import CallContext, Outcome
from shared.service.replica import Replica
from shared.store.base import RunRecord, Store
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs

TOKEN = "a-token-of-enough-characters"
FAR = 4_000_000_000.0
"""A deadline that does not come during a test."""


class EchoInputs(Wire):
    """What the small stage is asked for."""

    text: str = "hello"
    number: float = 1.0
    numbers: dict[str, float] = Field(default_factory=dict)
    rows: tuple[str, ...] = ()


class EchoOutputs(Wire):
    """What it answers."""

    text: str


Work = Callable[[StageCall[EchoInputs], CallContext], Awaitable[Outcome[EchoOutputs]]]


async def echo(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
    """Answer what was asked."""
    return Outcome(outputs=EchoOutputs(text=call.inputs.text))


class EchoHandler:
    """A handler whose work is a function."""

    stage: ClassVar[Stage] = Stage.REWARD
    inputs = EchoInputs
    outputs = EchoOutputs

    def __init__(self, work: Work = echo, *, exclusive: bool = False) -> None:
        self._work = work
        self.exclusive = exclusive
        self.num_calls = 0
        self.closed = False

    async def handle(self, call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        self.num_calls += 1
        return await self._work(call, context)

    async def close(self) -> None:
        self.closed = True


@dataclass
class Clock:
    """The store's time."""

    now_s: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class World:
    """A store in memory and its clock; replicas come and go before it."""

    clock: Clock = field(default_factory=Clock)
    store: Store = field(init=False)
    num_replicas: int = 0

    def __post_init__(self) -> None:
        self.store = memory_store(self.clock)

    def replica(self, store: Store | None = None) -> Replica:
        self.num_replicas += 1
        return Replica(
            instance=f"echo-{self.num_replicas}",
            revision="echo-00001",
            started_at=1.0,
            ready_at=2.0,
            store=store or self.store,
            blobs=MemoryBlobs(),
            executor=ThreadPoolExecutor(max_workers=1),
        )

    async def own(self, run: str = "run-1", *, times: int = 1) -> int:
        """Have the run owned so many times in a row; returns the fence of the last owner."""
        if await self.store.runs.get(run) is None:
            record = RunRecord(id=run, state="running", created_at=1.0, updated_at=1.0, config={}, info={})
            await self.store.runs.create(record, idempotency_key=None, digest="d")
        fence = 0
        for _ in range(times):
            owned = await self.store.runs.acquire(run, owner="controller", ttl_s=60.0)
            assert owned is not None
            fence = owned.fence
        return fence


def echo_call(*, text: str = "hello", shard: int = 0, fence: int = 0, **fields: Any) -> StageCall[EchoInputs]:
    """A call of the small stage."""
    key = CallKey(run="run-1", purpose=Purpose.TRAIN, step=3, stage=Stage.REWARD, shard=shard)
    return StageCall[EchoInputs](**{"key": key, "fence": fence, "deadline_at": FAR, **fields, "inputs": {"text": text}})


def echo_body(**changes: Any) -> dict[str, Any]:
    """A call's body as a client would write it. ``{"inputs.number": 2}`` changes a field within."""
    body: dict[str, Any] = json.loads(echo_call().model_dump_json())
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = body
        for parent in parents:
            place = place[parent]
        place[last] = value
    return body


async def nothing_to_close() -> None:
    """The store in memory needs no end."""


def echo_app(world: World, *handlers: EchoHandler) -> FastAPI:
    """The small stage as an application."""
    return serve_stages(handlers or (EchoHandler(),), world.replica(), token=TOKEN, close=nothing_to_close)


@asynccontextmanager
async def called(app: FastAPI, *, token: str | None = TOKEN) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the application in this process."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://function", headers=headers) as client:
        yield client
