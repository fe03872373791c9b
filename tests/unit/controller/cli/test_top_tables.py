"""``rlhfless top`` on terminals of all sizes."""

import io

import pytest
from rich.console import Console

from controller.cli.top_tables import rows_that_fit, top_screen
from controller.cli.top_view import TopView, top_view
from tests.unit.controller.cli.top_data import function, replica, top_data

RUN = {"id": "addition-3f9a", "state": "running", "info": {"total_steps": 60}}


def view_of(num_replicas: int = 2) -> TopView:
    names = ("rollout", "learner", "reward")
    return top_view(
        top_data(
            functions=[function(name, num_replicas=2, num_ready=1, num_in_flight=1, num_queued=7) for name in names],
            replicas=[replica(f"rollout-00001-{index:04d}") for index in range(num_replicas)],
            costs={"rollout": 0.0123},
            runs=[RUN],
            last_steps={"addition-3f9a": {"step": 11, "metrics": {"critic/score/mean": 0.515}}},
        )
    )


def lines_of(view: TopView, *, width: int = 120, height: int | None = None, note: str = "") -> list[str]:
    console = Console(record=True, file=io.StringIO(), width=width)
    console.print(top_screen(view, width=width, height=height, note=note))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_everything_is_on_a_wide_screen() -> None:
    lines = lines_of(view_of())
    assert lines[0].startswith("local on laptop")
    assert [line.split() for line in lines if "addition" in line] == [["addition-3f9a", "running", "12/60", "0.515"]]
    assert [line.split() for line in lines if line.startswith("rollout ")] == [
        ["rollout", "1", "0", "2", "1", "7", "0–8", "$0.012300", "rollout-00001"]
    ]
    assert [line.split() for line in lines if "0001 " in line and "ready" in line] == [
        ["rollout-00001-0001", "ready", "1", "min", "30", "s", "0", "$0.000000", "rollout-00001"]
    ]


@pytest.mark.parametrize(
    ("width", "shown", "hidden"),
    [
        (100, ["total", "queued", "scale", "revision"], ["not ready"]),
        (80, ["total", "queued", "scale"], ["revision"]),
        (60, ["queued", "in flight", "cost"], ["total", "scale", "revision"]),
        (50, ["pending", "cost"], ["queued", "total"]),
    ],
)
def test_a_narrow_screen_has_the_important_columns(width: int, shown: list[str], hidden: list[str]) -> None:
    lines = lines_of(view_of(), width=width)
    assert max(map(len, lines)) <= width
    [heading] = [line for line in lines if line.startswith("function")]
    assert all(name in heading for name in shown)
    assert not any(name in heading for name in hidden)


def test_a_function_that_is_not_ready_says_why_on_every_screen() -> None:
    broken = top_view(top_data(functions=[function("rollout", ready=False, reason="crash loop: 3 failed to start")]))
    assert "crash loop: 3 failed to start" in "\n".join(lines_of(broken))
    [_, row] = lines_of(broken, width=60)[3:]
    assert row.startswith("rollout")
    assert row.endswith("…")


def test_a_long_reason_is_cut_and_not_folded() -> None:
    pending = replica("rollout-00001-ab", "pending", reason="unschedulable: " + "x" * 200)
    lines = lines_of(top_view(top_data(replicas=[pending])), width=80)
    [row] = [line for line in lines if line.startswith("rollout-00001-ab")]
    assert "pending: unsch" in row
    assert "…" in row
    assert row.endswith("–")
    assert len(lines) == 5


@pytest.mark.parametrize("height", range(15, 40))
def test_a_low_screen_is_never_overrun(height: int) -> None:
    lines = lines_of(view_of(num_replicas=30), height=height)
    assert len(lines) <= height
    num_shown = sum(line.startswith("rollout-00001-") for line in lines)
    left_out = [int(line.split()[2]) for line in lines if line.startswith("…")]
    assert num_shown + sum(left_out) == 30
    assert len(lines) >= min(height, 43) - 1


def test_what_has_few_lines_left_is_cut_from_the_end() -> None:
    assert rows_that_fit([1, 3, 30], None) == [1, 3, 30]
    assert rows_that_fit([1, 3, 30], 40) == [1, 3, 30]
    assert rows_that_fit([1, 3, 30], 39) == [1, 3, 28]
    assert rows_that_fit([1, 3, 30], 12) == [1, 3, 1]
    assert rows_that_fit([1, 9, 30], 15) == [1, 5, 1]
    assert rows_that_fit([1, 2], 5) == [1, 2]
    assert rows_that_fit([5, 5], 1) == [1, 1]
    assert rows_that_fit([], 1) == []


def test_a_lost_controller_is_told_above_its_last_state() -> None:
    lines = lines_of(view_of(), note="no answer from the controller")
    assert lines[2] == "no answer from the controller"
    assert any(line.startswith("rollout-00001-") for line in lines)


def test_nothing_a_reason_says_acts_on_the_terminal() -> None:
    odd = replica("rollout-00001-ab", "pending", reason="[red]\x1b[2J")
    text = "\n".join(lines_of(top_view(top_data(replicas=[odd]))))
    assert "\x1b" not in text
    assert "[red]" in text


def test_a_controller_without_functions_has_a_head_only() -> None:
    assert len(lines_of(top_view(top_data()))) == 2
