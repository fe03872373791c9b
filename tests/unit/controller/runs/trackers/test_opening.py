"""Trackers of a whole run: what is written, and what is not."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.runs.trackers import opening
from controller.runs.trackers.jsonl import METRICS_FILE
from controller.runs.trackers.opening import CLASSES, missing_libraries
from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, config_of, make_world


class Spy:
    """A tracker that fails at its second point."""

    made_of: Tracked | None = None
    num_points = 0
    num_closed = 0

    def __init__(self, tracked: Tracked) -> None:
        Spy.made_of = tracked

    def log(self, point: Point) -> None:
        Spy.num_points += 1
        if Spy.num_points == 2:
            raise ConnectionError("the tracker is away")

    def close(self) -> None:
        Spy.num_closed += 1


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    """Stands in for W&B."""
    module = ModuleType("controller.runs.trackers.wandb")
    module.WandbTracker = Spy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(Spy, "num_points", 0)
    return Spy


def lines(world: World) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (world.checkpoint_root / METRICS_FILE).read_text().splitlines()]


async def warnings(world: World) -> list[str]:
    events = await world.store.events.read(RUN)
    return [event.data["message"] for event in events if event.kind == "log" and event.data["level"] == "warning"]


@in_virtual_time
async def test_every_run_leaves_its_metrics_as_lines(tmp_path: Path) -> None:
    world = await make_world(tmp_path, trainer__logger=[])
    await world.drive()
    assert [(line["kind"], line["step"]) for line in lines(world)] == [
        ("eval", 0), ("step", 1), ("step", 2), ("step", 3), ("eval", 3),
    ]  # fmt: skip
    [first, *_] = await world.history("step")
    assert lines(world)[1]["actor/pg_loss" if "actor/pg_loss" in first["metrics"] else "actor/loss"] == 1.0
    assert [line["training/global_step"] for line in lines(world) if line["kind"] == "step"] == [1, 2, 3]
    assert [line["training/epoch"] for line in lines(world) if line["kind"] == "step"] == [0.5, 1.0, 1.5]


def test_a_tracker_that_fails_is_told_of_once_and_the_run_succeeds(tmp_path: Path, spy: type[Spy]) -> None:
    @in_virtual_time
    async def run() -> None:
        world = await make_world(tmp_path, trainer__logger=["wandb"])
        assert (await world.drive()).step == 3
        assert await warnings(world) == [
            "tracker wandb is left out, the run goes on: ConnectionError: the tracker is away"
        ]
        assert len(lines(world)) == 5, "the others go on"

    run()
    assert (spy.num_points, spy.num_closed) == (2, 1)


def test_a_tracker_knows_the_run_and_none_of_its_secrets(tmp_path: Path, spy: type[Spy]) -> None:
    key = "sk-" + "a1B2" * 6

    @in_virtual_time
    async def run() -> None:
        world = await make_world(tmp_path, trainer__logger="wandb", data__prompt_key=key)
        await world.drive()
        assert spy.made_of is not None
        assert (spy.made_of.run, spy.made_of.project) == (RUN, "rlhfless")
        assert spy.made_of.config["data"]["prompt_key"] == "***"

    run()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"training/global_step" in written
    assert key.encode() not in written


def test_every_tracker_that_a_config_may_name_can_be_made() -> None:
    choices = {"console", "jsonl", "tensorboard", "wandb", "mlflow"}
    assert set(CLASSES) == choices
    assert config_of(trainer__logger=sorted(choices)).trainer.logger == tuple(sorted(choices))


def test_a_library_that_is_not_installed_is_a_problem_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None if name == "mlflow" else object())
    [problem] = missing_libraries(config_of(trainer__logger=["console", "mlflow", "tensorboard"]))
    assert problem.field == "trainer.logger"
    assert "mlflow" in problem.reason
    assert missing_libraries(config_of(trainer__logger=["console"])) == []
