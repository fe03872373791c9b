"""What a tracker is, and all trackers of a run together. A tracker that fails is left out; it never fails the run."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, TypeVarTuple

from controller.runs.scrubbing import scrubbed_text
from controller.runs.trackers.points import Point, point_of

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LIMIT_S = 30.0
"""How long a tracker may take for one point, or to start; then it is left out."""
CLOSE_LIMIT_S = 10.0
"""How long a tracker may take to end: replicas of a cancelled run are held meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """The run as trackers know it."""

    run: str
    project: str
    folder: Path
    """The run's own folder."""
    config: Mapping[str, Any]
    """Without secrets."""
    points: Sequence[Point]
    """What the run measured before, oldest first. An owner that was killed may not have tracked the last."""


class Tracker(Protocol):
    """Writes points somewhere. Called from one thread at a time, never from the event loop's."""

    def log(self, point: Point) -> None:
        """Add a point. The same one again changes nothing."""
        ...

    def close(self) -> None:
        """Write what is left and let go of everything."""
        ...


LetGo = Callable[[Future[Any]], None]
"""Ends a tracker after its last call."""
Open = Callable[[Tracked], Tracker]
"""Makes a tracker, which goes on where one of the same run stopped."""


class Trackers:
    """The trackers of one owner of a run."""

    def __init__(self, report: Callable[[str], Awaitable[None]]) -> None:
        """``report`` is told, once per tracker, why it was left out."""
        self._report = report
        self._trackers: dict[str, Tracker] = {}
        self._threads = DaemonThreads()

    async def open(self, name: str, make: Open, tracked: Tracked) -> None:
        """Start one more tracker."""
        tracker = await self._guarded(name, LIMIT_S, _let_go_of_late_one, make, tracked)
        if tracker is not None:
            self._trackers[name] = tracker

    async def log(self, line: Mapping[str, Any]) -> None:
        """Track a line of history, if it has metrics."""
        point = point_of(line)
        if point is not None:
            for name, tracker in list(self._trackers.items()):
                await self._guarded(name, LIMIT_S, partial(_let_go, tracker), tracker.log, point)

    async def close(self) -> None:
        """End all trackers. Points that come later are not tracked."""
        for name, tracker in list(self._trackers.items()):
            await self._guarded(name, CLOSE_LIMIT_S, None, tracker.close)
        self._trackers.clear()

    async def _guarded(
        self, name: str, limit_s: float, let_go: LetGo | None, call: Callable[[*Ts], T], *args: *Ts
    ) -> T | None:
        """What the call returns; ``None`` where it fails or takes too long: the tracker is left out and let go of."""
        loop, work = asyncio.get_running_loop(), Future[T]()
        try:
            async with asyncio.timeout(limit_s):
                return await loop.run_in_executor(self._threads, _kept_in, work, call, *args)
        except TimeoutError:
            reason = f"no answer in {limit_s:g} s"
        except asyncio.CancelledError:
            if let_go is _let_go_of_late_one:
                self._threads.submit(let_go, work)
            raise
        except Exception as error:
            reason = scrubbed_text(f"{type(error).__name__}: {error}")
        self._trackers.pop(name, None)
        await self._report(f"tracker {name} is left out, the run goes on: {reason}")
        if let_go is not None and work.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await loop.run_in_executor(self._threads, let_go, work)
        elif let_go is not None:
            # It hangs: nobody waits for it.
            self._threads.submit(let_go, work)
        return None


def _kept_in(work: Future[T], call: Callable[[*Ts], T], *args: *Ts) -> T:
    """What the call returns, for whoever asks later too."""
    try:
        work.set_result(call(*args))
    except BaseException as error:
        work.set_exception(error)
    return work.result()


def _let_go(tracker: Tracker, work: Future[Any]) -> None:
    """Close a tracker once its last call has returned, as no two are made at a time. Why it fails was told."""
    with contextlib.suppress(Exception):
        work.result()
    with contextlib.suppress(Exception):
        tracker.close()


def _let_go_of_late_one(work: Future[Any]) -> None:
    """Close a tracker that was made when nobody waited for it any more."""
    with contextlib.suppress(Exception):
        work.result().close()


class DaemonThreads(Executor):
    """A thread of its own for each call: one that hangs holds up neither another one nor the end of the process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See ``Executor.submit``."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, daemon=True, name="tracker").start()
        return future


async def _silent(_: str) -> None:
    """Nobody is told."""


NOT_TRACKED = Trackers(_silent)
"""No tracker at all."""
