"""Show a run's progress: redrawn in place in a terminal, else as a line every few seconds."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controller.cli.progress import ProgressView
from controller.cli.text import duration, number, printable

LINE_EVERY_S = 5.0
"""Pace of lines where they cannot be redrawn, such as in the logs of a CI job."""
PHASES = {"starting": "starting replicas", "evaluating": "evaluating on the held-out rows", "step": "training"}


class Display(Protocol):
    """Where progress is shown. To be used as a context manager."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, view: ProgressView) -> None:
        """Show the view, now or soon."""
        ...

    def say(self, line: str) -> None:
        """Show a line that stays."""
        ...


def open_display(console: Console, run: str) -> Display:
    """The display that fits the console."""
    return LiveDisplay(console, run) if console.is_terminal else LineDisplay(console)


class LiveDisplay:
    """Redraws in place."""

    def __init__(self, console: Console, run: str) -> None:
        self._run = run
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, view: ProgressView) -> None:
        """See ``Display.show``."""
        self._live.update(panel(self._run, view))

    def say(self, line: str) -> None:
        """See ``Display.say``."""
        self._live.console.print(Text(printable(line)), soft_wrap=True)


class LineDisplay:
    """Prints a line when enough time has passed since the last one."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._latest = self._shown = ProgressView()
        self._shown_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._catch_up()

    def show(self, view: ProgressView) -> None:
        """See ``Display.show``."""
        self._latest = view
        if view.num_steps and self._clock() - self._shown_at >= LINE_EVERY_S:
            self._print(view)

    def say(self, line: str) -> None:
        """See ``Display.say``. The steps before it are shown before it."""
        self._catch_up()
        self._write(line)

    def _catch_up(self) -> None:
        if self._latest.num_steps != self._shown.num_steps:
            self._print(self._latest)

    def _print(self, view: ProgressView) -> None:
        self._shown, self._shown_at = view, self._clock()
        self._write(one_line(view))

    def _write(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=True)


def one_line(view: ProgressView) -> str:
    """The view in one line."""
    parts = [
        f"step {_steps(view)}",
        f"reward {number(view.reward_mean)}",
        f"length {number(view.completion_tokens, 1)}",
        f"{number(view.mean_step_s, 2)} s/step",
        f"replicas {_replicas(view)}",
        f"left {duration(view.time_left_s)}",
    ]
    if view.accuracy_before is not None:
        parts.append(f"accuracy {_accuracy(view)}")
    return "  ".join(parts)


def panel(run: str, view: ProgressView) -> RenderableType:
    """The view as a bar and a small table."""
    doing = PHASES.get(view.phase, view.phase) if view.state == "running" else view.state
    bar = ProgressBar(total=view.total_steps or 1, completed=view.num_steps, width=60)
    table = Table.grid(padding=(0, 2))
    table.add_row("step", _steps(view), "reward", number(view.reward_mean))
    table.add_row("time left", duration(view.time_left_s), "completion tokens", number(view.completion_tokens, 1))
    table.add_row("time per step", f"{number(view.mean_step_s, 2)} s", "held-out accuracy", _accuracy(view))
    return Group(Text(f"{printable(run)}: {printable(doing)}"), bar, table, Text(f"replicas  {_replicas(view)}"))


def _steps(view: ProgressView) -> str:
    return f"{view.num_steps}/{'?' if view.total_steps is None else view.total_steps}"


def _replicas(view: ProgressView) -> str:
    return ", ".join(f"{printable(name)} {count}" for name, count in sorted(view.replicas.items())) or "–"


def _accuracy(view: ProgressView) -> str:
    return f"{number(view.accuracy_before)} → {number(view.accuracy_after)}"
