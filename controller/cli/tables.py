"""Answers of the controller as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller.cli.text import duration, moment, money, number, printable, size

PURPOSES = {"init": "start", "train": "training", "eval": "evaluation"}


def problem_table(problems: Sequence[Mapping[str, str]]) -> Table:
    """What is wrong with a config, a line each."""
    table = plain_table("key", "problem", "what to do")
    for problem in problems:
        table.add_row(*(plain_text(problem.get(name, "")) for name in ("field", "reason", "suggestion")))
    return table


def run_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Runs, a line each."""
    table = plain_table("run", "state", "created", "steps", "reason")
    for run in runs:
        info = run["info"]
        table.add_row(
            plain_text(run["id"]),
            run["state"],
            moment(run["created_at"]),
            str(info.get("total_steps", "–")),
            plain_text(info.get("error") or ""),
        )
    return table


def function_table(functions: Sequence[Mapping[str, Any]]) -> Table:
    """Functions and their replicas, a line each."""
    table = plain_table("function", "stages", "ready", "pending", "working", "queued", "scale", "revision", "state")
    for function in functions:
        most = function["max_scale"] or "∞"
        table.add_row(
            plain_text(function["name"]),
            ", ".join(function["stages"]),
            str(function["num_ready"]),
            str(function["num_pending"]),
            str(function["num_in_flight"]),
            str(function["num_queued"]),
            f"{function['min_scale']}–{most}",
            plain_text(function["revision"]),
            plain_text("ready" if function["ready"] else function["reason"] or "not ready"),
        )
    return table


def function_report(function: Mapping[str, Any]) -> RenderableType:
    """All that there is to say about one function."""
    table = Table.grid(padding=(0, 2))
    table.add_row("function", plain_text(function["name"]))
    table.add_row("stages", ", ".join(function["stages"]))
    table.add_row("state", plain_text("ready" if function["ready"] else function["reason"] or "not ready"))
    table.add_row("image", plain_text(function["image"]))
    table.add_row("url", plain_text(function["url"]))
    table.add_row("replicas", f"{function['num_ready']} ready, {function['num_pending']} pending")
    if function["change"] is not None:
        table.add_row("last change", plain_text(change_text(function["change"])))
    revisions = plain_table("revision", "requests", "tags", "ready", "replicas")
    for revision in function["revisions"]:
        revisions.add_row(
            plain_text(revision["name"]),
            f"{revision['percent']} %",
            plain_text(", ".join(revision["tags"])),
            "yes" if revision["ready"] else "no",
            str(revision["num_replicas"]),
        )
    return Group(table, revisions)


def change_text(change: Mapping[str, Any]) -> str:
    """A change in one line."""
    what = [part for part in (change["image"], ", ".join(change["env"])) if part]
    told = f"{change['state']} ({'from outside' if change['from_outside'] else change['when']})"
    return ": ".join([told, *what, *([change["reason"]] if change["reason"] else [])])


def run_report(
    run: Mapping[str, Any], outcome: Mapping[str, Any], checkpoints: Sequence[Mapping[str, Any]]
) -> RenderableType:
    """All that there is to say about one run."""
    table = Table.grid(padding=(0, 2))
    table.add_row("run", plain_text(run["id"]))
    table.add_row("state", plain_text(run["state"] + (f": {outcome['reason']}" if outcome["reason"] else "")))
    table.add_row("created", moment(run["created_at"]))
    table.add_row("model", plain_text(run["config"].get("model", {}).get("path", "–")))
    files = plain_table("checkpoint", "size", "folder")
    for checkpoint in checkpoints:
        files.add_row(str(checkpoint["step"]), size(checkpoint["num_bytes"]), plain_text(checkpoint["folder"]))
    return Group(table, outcome_report(outcome), *([files] if checkpoints else []))


def outcome_report(outcome: Mapping[str, Any]) -> RenderableType:
    """What a run came to: accuracy, time, cost by stage, and where the model lies."""
    table = Table.grid(padding=(0, 2))
    accuracy = f"{number(outcome['accuracy_before'])} before, {number(outcome['accuracy_after'])} after"
    table.add_row("held-out accuracy", accuracy)
    table.add_row("steps", f"{outcome['steps']} of {outcome.get('total_steps') or '–'}")
    table.add_row("training time", duration(outcome["train_s"]))
    table.add_row("trained model", plain_text(outcome["model_dir"] or "–"))
    return Group(table, ledger_table(outcome["ledger"])) if outcome["ledger"] else table


def ledger_table(ledger: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """What each function's replicas cost, by what for, and in all."""
    fields = ("busy_s", "idle_s", "cold_s", "draining_s", "cpu_seconds", "gpu_seconds")
    table = plain_table("for", "function")
    for heading in ("busy s", "idle s", "cold s", "draining s", "CPU-s", "GPU-s", "cost $"):
        table.add_column(heading, justify="right")
    totals = dict.fromkeys((*fields, "usd"), 0.0)
    for purpose, functions in ledger.items():
        for function, cost in functions.items():
            table.add_row(PURPOSES.get(purpose, plain_text(purpose)), plain_text(function), *_cost_cells(cost, fields))
            totals = {name: total + cost[name] for name, total in totals.items()}
    table.add_section()
    table.add_row("all", "", *_cost_cells(totals, fields))
    return table


def _cost_cells(cost: Mapping[str, float], fields: Sequence[str]) -> list[str]:
    return [*(f"{cost[name]:.1f}" for name in fields), money(cost["usd"])]


def plain_table(*headings: str) -> Table:
    """A table without lines, whose long cells are folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def plain_text(value: object) -> Text:
    """A cell."""
    # Not a str: rich reads markup in those, and a config key may look like some.
    return Text(printable(value), overflow="fold")
