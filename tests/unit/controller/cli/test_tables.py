import io
from typing import Any

from rich.console import Console, RenderableType

from controller.cli.tables import function_table, ledger_table, outcome_report, problem_table, run_report, run_table

OUTCOME: dict[str, Any] = {
    "run": "run-0",
    "state": "succeeded",
    "reason": None,
    "accuracy_before": 0.34375,
    "accuracy_after": 0.875,
    "steps": 360,
    "total_steps": 360,
    "wall_s": 250.0,
    "train_s": 200.0,
    "ledger": {},
    "checkpoint": "/c/global_step_360",
    "model_dir": "/c/global_step_360/huggingface",
}


def cost(**parts: float) -> dict[str, float]:
    names = ("busy_s", "idle_s", "cold_s", "draining_s", "cpu_seconds", "gpu_seconds", "usd")
    return dict.fromkeys(names, 0.0) | parts


def shown(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(renderable)
    return console.file.getvalue()


def rows(renderable: RenderableType) -> list[list[str]]:
    return [line.split() for line in shown(renderable).splitlines() if line.strip()]


def test_the_ledger_adds_up() -> None:
    ledger = {
        "train": {"rollout": cost(busy_s=10.0, usd=0.5), "learner": cost(busy_s=5.0, cold_s=2.5)},
        "eval": {"rollout": cost(busy_s=1.25, cpu_seconds=3.0)},
    }
    [_, *lines, total] = rows(ledger_table(ledger))
    assert lines == [
        ["training", "rollout", "10.0", "0.0", "0.0", "0.0", "0.0", "0.0", "0.500000"],
        ["training", "learner", "5.0", "0.0", "2.5", "0.0", "0.0", "0.0", "0.000000"],
        ["evaluation", "rollout", "1.2", "0.0", "0.0", "0.0", "3.0", "0.0", "0.000000"],
    ]
    assert total == ["all", "16.2", "0.0", "2.5", "0.0", "3.0", "0.0", "0.500000"]


def test_the_outcome_says_what_the_run_came_to() -> None:
    text = shown(outcome_report(OUTCOME))
    for part in ("0.344 before, 0.875 after", "360 of 360", "3 min 20 s", "/c/global_step_360/huggingface"):
        assert part in text


def test_the_outcome_of_a_run_that_did_nothing_is_dashes() -> None:
    nothing = dict.fromkeys(OUTCOME) | {"ledger": {}, "steps": 0}
    assert "– before, – after" in shown(outcome_report(nothing))


def test_problems_are_shown_as_they_are() -> None:
    table = problem_table([{"field": "[red]a[/red]", "reason": "\x1b[2J", "suggestion": "x" * 300}])
    text = shown(table)
    assert "[red]a[/red]" in text
    assert "\x1b" not in text
    assert "".join(text.split()).count("x") == 300


def test_runs_and_functions_are_a_line_each() -> None:
    run = {"id": "run-0", "state": "failed", "created_at": 0.0, "info": {"total_steps": 4, "error": "disk full"}}
    assert rows(run_table([run]))[1][-3:] == ["4", "disk", "full"]
    function = {
        "name": "rollout",
        "stages": ["rollout"],
        "num_ready": 0,
        "num_pending": 1,
        "num_in_flight": 0,
        "num_queued": 3,
        "min_scale": 0,
        "max_scale": 0,
        "revision": "rollout-00001",
        "ready": False,
        "reason": "unschedulable",
    }
    assert rows(function_table([function]))[1] == [
        *["rollout", "rollout", "0", "1", "0", "3", "0–∞", "rollout-00001", "unschedulable"]
    ]


def test_a_report_has_the_checkpoints() -> None:
    run = {"id": "run-0", "state": "failed", "created_at": 0.0, "config": {"model": {"path": "/m/tiny"}}}
    outcome = OUTCOME | {"reason": "disk full"}
    text = shown(run_report(run, outcome, [{"step": 4, "num_bytes": 2048, "folder": "/c/global_step_4"}]))
    for part in ("failed: disk full", "/m/tiny", "2.0 KiB", "/c/global_step_4"):
        assert part in text
