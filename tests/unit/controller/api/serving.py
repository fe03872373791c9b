"""The API of a fake service: called without a network, or served by a real server where streams matter."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import cache

import httpx
import uvicorn
from fastapi import FastAPI

from controller.api.app import make_api
from controller.api.request import Pace
from controller.platforms.base import FunctionState
from controller.runs.function_info import Announced
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.state import RunState
from tests.unit.controller.api.fake_service import FakeService

ADMIN_TOKEN = "the-admins-token-of-this-api"
QUICK = Pace(heartbeat_s=0.05, settle_s=0.02)


@cache
def _app(token: str | None) -> FastAPI:
    """One application for all tests of this process, which lend it their services one after another."""
    return make_api(FakeService(), token=token, admin_token=ADMIN_TOKEN, swaps=swaps_of(FakeService()), pace=QUICK)


def swaps_of(service: FakeService) -> FunctionSwaps:
    """Changes of the service's functions that nobody performs."""

    async def ping(function: FunctionState) -> Announced:
        raise AssertionError(f"nobody changes {function.name}")

    async def run_goes_on() -> str | None:
        return next((record.id for record in service.records.values() if record.state == RunState.RUNNING), None)

    return FunctionSwaps(FunctionsOnly(service), service.editor, ping, run_goes_on=run_goes_on)


class FunctionsOnly:
    """Of a platform, what changes look at before they are performed."""

    def __init__(self, service: FakeService) -> None:
        self._service = service

    def now(self) -> float:
        """A time that stands still."""
        return 50.0

    async def functions(self) -> Sequence[FunctionState]:
        """The service's."""
        return await self._service.functions()


@asynccontextmanager
async def called(service: FakeService, *, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client that calls the application in this process. A defect is raised here, not hidden in a 500."""
    app = _app(token)
    app.state.service, app.state.swaps = service, swaps_of(service)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        yield client


@asynccontextmanager
async def served(
    service: FakeService, *, token: str | None = None, port: int = 0, pace: Pace = QUICK
) -> AsyncIterator[str]:
    """The URL of a real server of the service's API, on this loop."""
    async with served_app(make_api(service, token=token, swaps=swaps_of(service), pace=pace), port=port) as url:
        yield url


@asynccontextmanager
async def served_app(app: FastAPI, *, port: int = 0) -> AsyncIterator[str]:
    """The URL of a real server of the application, on this loop."""
    # Streams that are open at the end are cut off at once, as by a controller that dies.
    config = uvicorn.Config(app, port=port, log_level="critical", ws="none", timeout_graceful_shutdown=0)
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.ended.set()
        await serving


class QuietServer(uvicorn.Server):
    """A server that leaves the process's signals alone, and ends when it is told to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    def capture_signals(self) -> AbstractContextManager[None]:
        """Nothing to capture."""
        return nullcontext()

    async def main_loop(self) -> None:
        """Wait for the end, without looking for it ten times a second."""
        await self.on_tick(0)
        await self.ended.wait()
