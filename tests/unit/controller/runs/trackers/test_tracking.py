"""All trackers of a run together: whatever one does, the others and the run go on."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from controller.runs.trackers import tracking
from controller.runs.trackers.points import Point
from controller.runs.trackers.tracking import Tracked, Trackers
from tests.unit.controller.runs.trackers.examples import tracked


class Recording:
    """Keeps what it is given, up to a point at which it fails."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.steps: list[int] = []
        self.threads: set[int] = set()
        self.num_closed = 0
        self.closed = threading.Event()
        self._fails_at = fails_at

    def log(self, point: Point) -> None:
        self.threads.add(threading.get_ident())
        if point.step == self._fails_at:
            raise ConnectionError("no route to https://me:hunter2@tracker.example")
        self.steps.append(point.step)

    def close(self) -> None:
        self.num_closed += 1
        self.closed.set()
        if self._fails_at == -1:
            raise OSError("disk full")


def line(step: int) -> dict[str, Any]:
    return {"kind": "step", "step": step - 1, "time": 1.0, "metrics": {"actor/pg_loss": 0.0}}


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def trackers(reports: list[str]) -> Trackers:
    async def report(message: str) -> None:
        reports.append(message)

    return Trackers(report)


async def test_every_tracker_gets_every_point_off_the_loop_and_is_closed(trackers: Trackers, tmp_path: Path) -> None:
    first, second = Recording(), Recording()
    for name, recording in (("first", first), ("second", second)):
        await trackers.open(name, lambda _, made=recording: made, tracked(tmp_path))
    for step in (1, 2):
        await trackers.log(line(step))
    await trackers.log({"kind": "checkpoint", "step": 2, "time": 1.0})
    await trackers.close()
    await trackers.log(line(3))
    assert first.steps == second.steps == [1, 2]
    assert first.num_closed == second.num_closed == 1
    assert threading.get_ident() not in first.threads


async def test_one_that_fails_is_reported_once_without_secrets_and_left_out(
    trackers: Trackers, reports: list[str], tmp_path: Path
) -> None:
    good, bad = Recording(), Recording(fails_at=2)
    await trackers.open("bad", lambda _: bad, tracked(tmp_path))
    await trackers.open("good", lambda _: good, tracked(tmp_path))
    for step in (1, 2, 3):
        await trackers.log(line(step))
    await trackers.close()
    assert good.steps == [1, 2, 3]
    assert bad.steps == [1]
    assert bad.num_closed == good.num_closed == 1
    [report] = reports
    assert "tracker bad is left out, the run goes on: ConnectionError" in report
    assert "hunter2" not in report


async def test_one_that_cannot_start_or_end_is_reported(trackers: Trackers, reports: list[str], tmp_path: Path) -> None:
    def refuse(_: Tracked) -> Recording:
        raise PermissionError("no key")

    await trackers.open("refused", refuse, tracked(tmp_path))
    await trackers.open("stuck", lambda _: Recording(fails_at=-1), tracked(tmp_path))
    await trackers.log(line(1))
    await trackers.close()
    assert [report.split()[1] for report in reports] == ["refused", "stuck"]


async def test_one_that_hangs_is_left_out_after_its_limit(
    trackers: Trackers, reports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "LIMIT_S", 0.05)
    let_go = threading.Event()
    good, hanging = Recording(), Recording()
    hanging.log = lambda _: let_go.wait(60)  # type: ignore[method-assign, assignment]
    await trackers.open("hanging", lambda _: hanging, tracked(tmp_path))
    await trackers.open("good", lambda _: good, tracked(tmp_path))
    try:
        async with asyncio.timeout(30):
            await trackers.log(line(1))
            await trackers.log(line(2))
            await trackers.close()
    finally:
        let_go.set()
    assert good.steps == [1, 2]
    assert reports == ["tracker hanging is left out, the run goes on: no answer in 0.05 s"]
    hanging.closed.wait(30)
    assert hanging.num_closed == 1, "once its call has returned"


async def test_one_that_starts_too_late_is_closed(
    trackers: Trackers, reports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "LIMIT_S", 0.05)
    let_go, late = threading.Event(), Recording()

    def make(_: Tracked) -> Recording:
        let_go.wait(60)
        return late

    await trackers.open("late", make, tracked(tmp_path))
    assert reports == ["tracker late is left out, the run goes on: no answer in 0.05 s"]
    let_go.set()
    assert late.closed.wait(30)
    await trackers.log(line(1))
    await trackers.close()
    assert (late.steps, late.num_closed) == ([], 1)


async def test_one_that_starts_while_its_run_is_cancelled_is_closed(trackers: Trackers, tmp_path: Path) -> None:
    began, let_go, late = threading.Event(), threading.Event(), Recording()

    def make(_: Tracked) -> Recording:
        began.set()
        let_go.wait(60)
        return late

    opening = asyncio.create_task(trackers.open("late", make, tracked(tmp_path)))
    await asyncio.to_thread(began.wait, 30)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    let_go.set()
    assert late.closed.wait(30)


async def test_one_that_fails_and_cannot_end_holds_nobody_up(
    trackers: Trackers, reports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "CLOSE_LIMIT_S", 0.05)
    let_go, bad = threading.Event(), Recording(fails_at=1)
    bad.close = lambda: let_go.wait(60)  # type: ignore[method-assign, assignment]
    await trackers.open("bad", lambda _: bad, tracked(tmp_path))
    try:
        async with asyncio.timeout(30):
            await trackers.log(line(1))
            await trackers.close()
    finally:
        let_go.set()
    assert len(reports) == 1
