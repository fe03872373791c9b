"""``rlhfless top`` against a real API: once, as JSON, and live."""

import asyncio
import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from controller.cli.client import ControllerClient, Refused, Unreachable
from controller.cli.settings import Connection
from controller.cli.top_command import Watch, follow
from controller.cli.top_view import TopData
from controller.platforms.base import ReplicaLife
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from tests.unit.controller.cli.conftest import HEARING_CTRL_C, Controller, command
from tests.unit.controller.cli.top_data import replica, top_data

LEFT_SCREEN = b"\x1b[?1049l"
"""What brings the terminal's own screen back."""
LIFE = ReplicaLife(
    instance=InstanceId("rollout-00001-ab"),
    function="rollout",
    stages=(Stage.ROLLOUT,),
    revision="rollout-00001",
    num_cpus=1.0,
    num_gpus=0,
    scheduled_at=40.0,
    started_at=50.0,
    ready_at=51.0,
    num_in_flight=1,
)


def step(number: int, reward: float) -> dict[str, Any]:
    return {"step": number, "metrics": {"critic/score/mean": reward}}


@pytest.fixture
def busy_controller(controller: Controller) -> Controller:
    """A controller with a replica and three runs, of which one is over."""
    service = controller.service
    service.lives = [LIFE]
    service.add("run-0", RunState.SUCCEEDED, total_steps=4)
    service.add("run-1", RunState.RUNNING, total_steps=60)
    service.add("run-2", RunState.QUEUED, total_steps=9)
    for number in range(3):
        controller.call(service.emit("run-1", "step", step(number, number / 4)))
    controller.call(service.emit("run-1", "eval", {"step": 3, "accuracy": 0.9}))
    return controller


def test_once_is_a_plain_table(busy_controller: Controller) -> None:
    result = busy_controller.command("top", "--once")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["run-1", "running", "3/60", "0.500"] in rows
    assert ["run-2", "queued", "0/9", "–"] in rows
    assert ["rollout", "2", "0", "2", "1", "0", "0–8", "$0.500000", "rollout-00001"] in rows
    assert ["rollout-00001-ab", "ready", "50", "s", "1", "$0.500000", "rollout-00001"] in rows
    assert "simulated on " in result.stdout
    assert "run-0" not in result.stdout
    assert "\x1b" not in result.stdout


def test_where_there_is_no_terminal_once_is_enough(busy_controller: Controller) -> None:
    assert "rollout-00001-ab" in busy_controller.command("top").stdout


def test_json_has_everything(busy_controller: Controller) -> None:
    result = busy_controller.command("top", "--once", "--json")
    [line] = result.stdout.splitlines()
    shown = json.loads(line)
    assert shown["url"] == busy_controller.url
    assert shown["platform"] == "simulated"
    assert [(function["name"], function["usd"]) for function in shown["functions"]] == [("rollout", 0.5)]
    assert [(replica["instance"], replica["state"]) for replica in shown["replicas"]] == [("rollout-00001-ab", "ready")]
    assert [(run["id"], (run["last_step"] or {}).get("step")) for run in shown["runs"]] == [
        ("run-2", None),
        ("run-1", 2),
    ]


def test_json_is_for_once(controller: Controller) -> None:
    result = controller.command("top", "--json")
    assert result.exit_code == 2
    assert "--once" in result.stderr
    assert controller.command("top", "--once", "--interval", "0").exit_code == 2


def test_failures_are_those_of_every_command(controller: Controller) -> None:
    controller.service.failure = StoreUnavailable("Redis did not answer")
    assert controller.command("top", "--once").exit_code == 1
    assert command("--url", "http://127.0.0.1:1", "top", "--once").exit_code == 3


async def test_only_new_lines_of_a_history_are_read(busy_controller: Controller) -> None:
    service = busy_controller.service
    asked: list[int | None] = []

    class Client(ControllerClient):
        async def history(self, run: str, *, after_step: int | None = None) -> list[dict[str, Any]]:
            asked.append(after_step)
            return await super().history(run, after_step=after_step)

    async with Client(Connection(url=busy_controller.url, token=None)) as client:
        watch = Watch(client)
        assert (await watch.look()).last_steps["run-1"]["step"] == 2
        assert (await watch.look()).last_steps["run-1"]["step"] == 2
        busy_controller.call(service.emit("run-1", "step", step(3, 1.0)))
        assert (await watch.look()).last_steps["run-1"]["step"] == 3
        busy_controller.call(service.emit("run-1", "state", {"state": RunState.SUCCEEDED}))
        assert (await watch.look()).last_steps == {}
    assert asked == [None, 2, 2]


class Scripted:
    """A watch that sees what the script says, then waits to be interrupted."""

    def __init__(self, *script: TopData | Exception) -> None:
        self._script = list(script)
        self.exhausted = asyncio.Event()

    async def look(self) -> TopData:
        if not self._script:
            self.exhausted.set()
            await asyncio.Event().wait()
        seen = self._script.pop(0)
        if isinstance(seen, Exception):
            raise seen
        return seen


async def screens_of(watch: Scripted) -> str:
    """What is drawn until the script is over and Ctrl-C is pressed."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=30)
    following = asyncio.create_task(follow(watch, console, interval_s=0.0))  # type: ignore[arg-type]  # a fake
    exhausted = asyncio.create_task(watch.exhausted.wait())
    await asyncio.wait({following, exhausted}, return_when=asyncio.FIRST_COMPLETED)
    exhausted.cancel()
    following.cancel()
    await following
    drawn = console.file
    assert isinstance(drawn, io.StringIO)
    return drawn.getvalue()


async def test_live_it_redraws_until_ctrl_c() -> None:
    first = top_data(replicas=[replica("rollout-00001-first", "starting")])
    second = top_data(replicas=[replica("rollout-00001-second")])
    text = await screens_of(Scripted(first, second))
    assert text.index("rollout-00001-first") < text.index("rollout-00001-second")
    # The screen from before is there again.
    assert text.index("rollout-00001-second") < text.index(LEFT_SCREEN.decode())


def test_ctrl_c_in_a_terminal_is_the_way_out(busy_controller: Controller) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", HEARING_CTRL_C, "--url", busy_controller.url, "top", "--interval", "0.1"],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        drawn = b""
        while b"rollout-00001-ab" not in drawn:
            drawn += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal says that nobody writes any more
            while piece := os.read(ours, 65536):
                drawn += piece
    os.close(ours)
    assert process.returncode == 0
    assert b"Traceback" not in drawn
    assert drawn.rindex(LEFT_SCREEN) > drawn.rindex(b"rollout-00001-ab")


async def test_live_a_lost_controller_is_waited_for() -> None:
    data = top_data(replicas=[replica("rollout-00001-ab")])
    busy = Refused(503, {"message": "Redis did not answer", "retryable": True})
    text = await screens_of(Scripted(data, Unreachable("no answer from the controller"), busy, data))
    assert text.index("no answer from the controller") < text.index("Redis did not answer")
    assert text.count("rollout-00001-ab") == 4


async def test_live_a_refusal_ends_it() -> None:
    with pytest.raises(Refused, match="the token"):
        await screens_of(Scripted(top_data(), Refused(401, {"message": "send the token"})))
