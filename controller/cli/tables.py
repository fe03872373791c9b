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
    table = _table("key", "problem", "what to do")
    for problem in problems:
        table.add_row(*(_text(problem.get(name, "")) for name in ("field", "reason", "suggestion")))
    return table


def run_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """Runs, a line each."""
    table = _table("run", "state", "created", "steps", "reason")
    for run in runs:
        info = run["info"]
        table.add_row(
            _text(run["id"]),
            run["state"],
            moment(run["created_at"]),
            str(info.get("total_steps", "–")),
            _text(info.get("error") or ""),
        )
    return table


def function_table(functions: Sequence[Mapping[str, Any]]) -> Table:
    """Functions and their replicas, a line each."""
    table = _table("function", "stages", "ready", "pending", "working", "queued", "scale", "revision", "state")
    for function in functions:
        most = function["max_scale"] or "∞"
        table.add_row(
            _text(function["name"]),
            ", ".join(function["stages"]),
            str(function["num_ready"]),
            str(function["num_pending"]),
            str(function["num_in_flight"]),
            str(function["num_queued"]),
            f"{function['min_scale']}–{most}",
            _text(function["revision"]),
            _text("ready" if function["ready"] else function["reason"] or "not ready"),
        )
    return table


def function_report(function: Mapping[str, Any]) -> RenderableType:
    """All that there is to say about one function."""
    table = Table.grid(padding=(0, 2))
    table.add_row("function", _text(function["name"]))
    table.add_row("stages", ", ".join(function["stages"]))
    table.add_row("state", _text("ready" if function["ready"] else function["reason"] or "not ready"))
    table.add_row("image", _text(function["image"]))
    table.add_row("url", _text(function["url"]))
    table.add_row("replicas", f"{function['num_ready']} ready, {function['num_pending']} pending")
    if function["change"] is not None:
        table.add_row("last change", _text(change_text(function["change"])))
    revisions = _table("revision", "requests", "tags", "ready", "replicas")
    for revision in function["revisions"]:
        revisions.add_row(
            _text(revision["name"]),
            f"{revision['percent']} %",
            _text(", ".join(revision["tags"])),
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
    table.add_row("run", _text(run["id"]))
    table.add_row("state", _text(run["state"] + (f": {outcome['reason']}" if outcome["reason"] else "")))
    table.add_row("created", moment(run["created_at"]))
    table.add_row("model", _text(run["config"].get("model", {}).get("path", "–")))
    files = _table("checkpoint", "size", "folder")
    for checkpoint in checkpoints:
        files.add_row(str(checkpoint["step"]), size(checkpoint["num_bytes"]), _text(checkpoint["folder"]))
    return Group(table, outcome_report(outcome), *([files] if checkpoints else []))


def outcome_report(outcome: Mapping[str, Any]) -> RenderableType:
    """What a run came to: accuracy, time, cost by stage, and where the model lies."""
    table = Table.grid(padding=(0, 2))
    accuracy = f"{number(outcome['accuracy_before'])} before, {number(outcome['accuracy_after'])} after"
    table.add_row("held-out accuracy", accuracy)
    table.add_row("steps", f"{outcome['steps']} of {outcome.get('total_steps') or '–'}")
    table.add_row("training time", duration(outcome["train_s"]))
    table.add_row("trained model", _text(outcome["model_dir"] or "–"))
    return Group(table, ledger_table(outcome["ledger"])) if outcome["ledger"] else table


def ledger_table(ledger: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    """What each function's replicas cost, by what for, and in all."""
    fields = ("busy_s", "idle_s", "cold_s", "draining_s", "cpu_seconds", "gpu_seconds")
    table = _table("for", "function")
    for heading in ("busy s", "idle s", "cold s", "draining s", "CPU-s", "GPU-s", "cost $"):
        table.add_column(heading, justify="right")
    totals = dict.fromkeys((*fields, "usd"), 0.0)
    for purpose, functions in ledger.items():
        for function, cost in functions.items():
            table.add_row(PURPOSES.get(purpose, _text(purpose)), _text(function), *_cost_cells(cost, fields))
            totals = {name: total + cost[name] for name, total in totals.items()}
    table.add_section()
    table.add_row("all", "", *_cost_cells(totals, fields))
    return table


def _cost_cells(cost: Mapping[str, float], fields: Sequence[str]) -> list[str]:
    return [*(f"{cost[name]:.1f}" for name in fields), money(cost["usd"])]


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _text(value: object) -> Text:
    # Not a str: rich reads markup in those, and a config key may look like some.
    return Text(printable(value), overflow="fold")
