"""``rlhfless top`` on a terminal of some size: the columns and rows that fit, the important ones first."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller.cli.text import printable
from controller.cli.top_view import FunctionRow, ReplicaRow, RunRow, TopView

Row = RunRow | FunctionRow | ReplicaRow
STYLES = {"ready": "green", "starting": "cyan", "pending": "yellow", "draining": "dim"}
MIN_ROWS = 1
"""Rows of a table that are shown however small the terminal is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: a field of the row, and how wide the terminal must be to show it. An empty column is left out."""

    heading: str
    field: str
    from_width: int = 0
    numeric: bool = False
    flexible: bool = False
    """Whether it gives way where all columns together are too wide."""


Part = tuple[Sequence[Column], Sequence[Row]]
"""A table: its columns and its rows."""

RUNS = (
    Column(heading="run", field="run"),
    Column(heading="state", field="state"),
    Column(heading="steps", field="step", numeric=True),
    Column(heading="reward", field="reward", numeric=True),
)
FUNCTIONS = (
    Column(heading="function", field="function"),
    Column(heading="ready", field="ready", numeric=True),
    Column(heading="pending", field="pending", numeric=True),
    Column(heading="total", field="total", numeric=True, from_width=70),
    Column(heading="in flight", field="in_flight", numeric=True),
    Column(heading="queued", field="queued", numeric=True, from_width=60),
    Column(heading="scale", field="scale", numeric=True, from_width=80),
    Column(heading="cost", field="cost", numeric=True),
    Column(heading="revision", field="revision", from_width=100, flexible=True),
    Column(heading="not ready", field="state", flexible=True),
)
REPLICAS = (
    Column(heading="replica", field="replica"),
    Column(heading="state", field="state", flexible=True),
    Column(heading="age", field="age", numeric=True),
    Column(heading="in flight", field="in_flight", numeric=True, from_width=60),
    Column(heading="cost", field="cost", numeric=True, from_width=70),
    Column(heading="revision", field="revision", from_width=100, flexible=True),
)


def top_screen(view: TopView, *, width: int, height: int | None = None, note: str = "") -> RenderableType:
    """The view for so many columns and lines; ``None``: as many lines as it takes. ``note`` is shown above it."""
    lines = [Text(printable(line), no_wrap=True, overflow="ellipsis") for line in (view.where, view.held)]
    if note:
        lines.append(Text(printable(note), style="bold red", no_wrap=True, overflow="ellipsis"))
    every: tuple[Part, ...] = ((RUNS, view.runs), (FUNCTIONS, view.functions), (REPLICAS, view.replicas))
    parts = [(columns, rows) for columns, rows in every if rows]
    room = None if height is None else height - len(lines)
    counts = rows_that_fit([len(rows) for _, rows in parts], room)
    tables: list[RenderableType] = []
    for (columns, rows), count in zip(parts, counts, strict=True):
        tables += [Text(), _table(columns, rows[:count], width)]
        if count < len(rows):
            tables.append(Text(f"… and {len(rows) - count} more", style="dim"))
    return Group(*lines, *tables)


def rows_that_fit(counts: Sequence[int], room: int | None) -> list[int]:
    """How many rows of each table fit into so many lines; the last table is cut first.

    A table takes a blank line, its heading and its rows, and one more line where rows are left out.
    """
    shown = list(counts)
    for index in reversed(range(len(counts) if room is not None else 0)):
        excess = sum(2 + kept + (kept < count) for kept, count in zip(shown, counts, strict=True)) - (room or 0)
        if excess <= 0:
            break
        kept = max(MIN_ROWS, counts[index] - excess - 1)
        # The line that tells of one row left out would take that row's place.
        shown[index] = kept if counts[index] - kept > 1 else counts[index]
    return shown


def _table(columns: Sequence[Column], rows: Sequence[Row], width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [
        column
        for column in columns
        if width >= column.from_width and any(getattr(row, column.field) != "" for row in rows)
    ]
    for column in shown:
        table.add_column(
            Text(column.heading, no_wrap=True, overflow="ellipsis"),
            justify="right" if column.numeric else "left",
            no_wrap=not column.flexible,
            overflow="ellipsis",
        )
    for row in rows:
        table.add_row(*(_cell(column.field, getattr(row, column.field)) for column in shown))
    return table


def _cell(field: str, value: object) -> Text:
    text = printable(value)
    style = STYLES.get(text.partition(":")[0], "") if field == "state" else ""
    # Not a str: rich reads markup in those, and a reason may look like some.
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
