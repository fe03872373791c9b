"""A controller for the command to speak to: a real server in a thread, over a fake service."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from controller.api.app import make_api
from controller.cli.main import app
from shared.store.base import RunRecord
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import QUICK, served_app, swaps_of

Script = list[tuple[str, Mapping[str, Any]]]


class ActingService(FakeService):
    """Runs that are submitted do what the script says."""

    def __init__(self) -> None:
        super().__init__()
        self.script: Script = []
        self._acting: set[asyncio.Task[None]] = set()

    async def submit(self, *arguments: Any, **options: Any) -> RunRecord:
        """Add the run and let it act."""
        record = await super().submit(*arguments, **options)
        if self.script:
            self._acting.add(asyncio.create_task(self._act(record.id)))
        return record

    async def _act(self, run: str) -> None:
        for kind, data in self.script:
            await self.emit(run, kind, data)


HEARING_CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from controller.cli.main import main
main()
"""
"""A shell has what it starts in the background ignore Ctrl-C, and children of that as well, tests among them."""


class Controller:
    """A server of fake services, one after another, and the command with its address."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self._app = make_api(ActingService(), token=token, swaps=swaps_of(ActingService()), pace=QUICK)
        self.renew()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._stack = AsyncExitStack()
        self.url = self.call(self._stack.enter_async_context(served_app(self._app)))

    def renew(self) -> None:
        """Serve a service that knows of no run."""
        self.service = ActingService()
        self._app.state.service = self.service
        self._app.state.swaps = self.swaps = swaps_of(self.service)

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the server's loop."""
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result()

    def command(self, *arguments: str) -> Result:
        """Run ``rlhfless`` with this controller's address."""
        return command("--url", self.url, *([] if self.token is None else ["--token", self.token]), *arguments)

    def close(self) -> None:
        """End the server and its thread."""
        self.call(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def command(*arguments: str) -> Result:
    """Run ``rlhfless``; a defect is raised here."""
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture(autouse=True)
def no_controller_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Whatever runs on the machine of the tests is left alone."""
    for name in ("RLHFLESS_URL", "RLHFLESS_TOKEN", "RLHFLESS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RLHFLESS_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def open_controller() -> Iterator[Controller]:
    """A controller without a token, for the tests of one file."""
    controller = Controller(token=None)
    yield controller
    controller.close()


@pytest.fixture
def controller(open_controller: Controller) -> Controller:
    """A controller that knows of no run."""
    open_controller.renew()
    return open_controller
