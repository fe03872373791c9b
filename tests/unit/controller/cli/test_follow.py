import io

import pytest
from rich.console import Console

from controller.cli.client import ControllerClient
from controller.cli.follow import follow, notable
from controller.cli.settings import Connection
from controller.cli.sse import ServerEvent
from controller.runs.state import RunState
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import served

COST = {
    "busy_s": 1.5,
    "idle_s": 0.5,
    "cold_s": 1.0,
    "draining_s": 0.0,
    "cpu_seconds": 3.0,
    "gpu_seconds": 0.0,
    "usd": 0.25,
    "num_replicas": 1,
    "num_inferred": 0,
}


async def test_following_returns_what_the_run_came_to() -> None:
    service = FakeService()
    service.add("run-0", started_at=5.0, finished_at=65.0, total_steps=1)
    console = Console(file=io.StringIO(), width=200)
    async with served(service) as url, ControllerClient(Connection(url=url, token=None)) as client:
        await service.emit("run-0", "state", {"state": RunState.RUNNING})
        await service.emit("run-0", "eval", {"step": 0, "accuracy": 0.25, "num_rows": 8})
        ledger = {"rollout": COST | {"purpose": "train"}}
        await service.emit("run-0", "step", {"step": 0, "total_steps": 1, "metrics": {}, "ledger": ledger})
        await service.emit("run-0", "eval", {"step": 1, "accuracy": 0.75, "num_rows": 8})
        await service.emit("run-0", "checkpoint", {"step": 1, "folder": "/c/global_step_1"})
        await service.emit("run-0", "state", {"state": RunState.SUCCEEDED})
        outcome = await follow(client, "run-0", console=console)
    assert outcome == {
        "run": "run-0",
        "state": "succeeded",
        "reason": None,
        "total_steps": 1,
        "wall_s": 60.0,
        "accuracy_before": 0.25,
        "accuracy_after": 0.75,
        "steps": 1,
        "train_s": 11.0,
        "ledger": {"train": {"rollout": COST}},
        "checkpoint": "/c/global_step_1",
        "model_dir": "/c/global_step_1/huggingface",
    }
    assert console.file.getvalue().splitlines() == [
        "run running",
        "held-out accuracy 0.250 after 0 steps (8 prompts)",
        "step 1/1  reward –  length –  – s/step  replicas –  left –  accuracy 0.250 → –",
        "held-out accuracy 0.750 after 1 steps (8 prompts)",
        "checkpoint of step 1 in /c/global_step_1",
        "run succeeded",
    ]


async def test_a_run_that_never_started_came_to_nothing() -> None:
    service = FakeService()
    service.add("run-0", RunState.CANCELLED)
    async with served(service) as url, ControllerClient(Connection(url=url, token=None)) as client:
        outcome = await follow(client, "run-0", console=Console(file=io.StringIO()))
    assert (outcome["state"], outcome["steps"], outcome["model_dir"], outcome["wall_s"]) == ("cancelled", 0, None, None)


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        ("state", {"state": "failed", "reason": "disk full"}, "run failed: disk full"),
        ("log", {"level": "warning", "message": "rollout was retried"}, "warning: rollout was retried"),
        ("log", {"level": "info", "message": "columns recognised"}, None),
        ("progress", {"phase": "starting"}, "starting replicas"),
        ("progress", {"phase": "evaluating", "step": 3}, "evaluating on the held-out rows"),
        ("progress", {}, None),
        ("progress", {"phase": "step"}, None),
        ("step", {"step": 1}, None),
    ],
)
def test_what_people_want_to_have_seen_is_a_line(kind: str, data: dict[str, object], line: str | None) -> None:
    assert notable(ServerEvent(id="1", kind=kind, data=data)) == line
