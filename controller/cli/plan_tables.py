"""Plans and expectations as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller.cli.tables import plain_table, plain_text
from controller.cli.text import duration, money, number

MOST_ROWS = 16
"""Rows of one table; of more, the first ones."""


def plan_report(record: Mapping[str, Any]) -> RenderableType:
    """All plans of one step, and what was decided about replicas."""
    state = "is running" if record["state"] == "running" else "is done"
    parts: list[RenderableType] = [Text(f"step {record['step']} {state}")]
    for plan in record["rounds"]:
        parts += [_round_table(plan), *_tables(plan)]
    if record["holding"]:
        parts.append(_holding_table(record["holding"]))
    return Group(*parts)


def expectation_report(expected: Mapping[str, Any]) -> RenderableType:
    """What a step is expected to take and to cost, and what that is made of."""
    table = _grid()
    table.add_row("a step", f"{_seconds(expected['step_s'])}, {expected['tokens']:.0f} completion tokens")
    table.add_row("the first one", f"{_seconds(expected['first_step_s'])}, since actors start in it")
    table.add_row(
        "generation",
        f"{_seconds(expected['generation_s'])}, {number(expected['generation_replica_s'], 1)} replica-seconds, "
        f"${money(expected['generation_usd'])}",
    )
    for name, seconds in (expected["other_s"] or {}).items():
        table.add_row(plain_text(name), _seconds(seconds))
    cost = money(expected["run_generation_usd"])
    table.add_row(f"all {expected['num_steps']} steps", f"{duration(expected['run_s'])}, generation ${cost}")
    made_of = _grid()
    for line in expected["assumptions"]:
        made_of.add_row("–", plain_text(line))
    return Group(table, _round_table(expected["plan"]), *_tables(expected["plan"]), Text("made of:"), made_of)


def _round_table(plan: Mapping[str, Any]) -> Table:
    table = _grid()
    sources = ", ".join(f"{count} by {source}" for source, count in plan["length_sources"].items())
    table.add_row("round", f"{plan['round']}: {plan['num_groups']} groups on {plan['num_actors']} actors")
    table.add_row("lengths", plain_text(sources or "none"))
    table.add_row("speed", "stated defaults" if plan["profile"] is None else "measured")
    expected, measured = plan["expected"], plan.get("measured")
    if expected is not None:
        table.add_row("expected", f"{_seconds(expected['time_s'])}, {number(expected['unit_s'], 1)} unit-seconds")
    if measured is not None:
        errors = f"time {_percent(measured['time_error'])}, cost {_percent(measured['cost_error'])}"
        text = f"{_seconds(measured['time_s'])}, {number(measured['unit_s'], 1)} unit-seconds; error: {errors}"
        table.add_row("measured", text)
    if plan["prefill"] is not None:
        table.add_row("prefill", plain_text(f"{plan['prefill']['mode']}: {plan['prefill']['reason']}"))
    if plan["execution"] is not None:
        hint = plan["execution"]
        text = (
            f"{hint['kind']} is the fastest: {_seconds(hint['time_s'])}, phase after phase {_seconds(hint['phased_s'])}"
        )
        table.add_row("execution", plain_text(text))
    for line in plan["unhonoured"]:
        table.add_row("not honoured", plain_text(line))
    return table


def _tables(plan: Mapping[str, Any]) -> list[Table]:
    actors = plain_table("actor", "groups", "samples", "tokens", "seconds", "place")
    for index, actor in enumerate(plan["actors"][:MOST_ROWS]):
        actors.add_row(
            str(index),
            str(actor["num_groups"]),
            str(actor["num_samples"]),
            f"{actor['estimated_tokens']:.0f}",
            number(actor["expected_s"], 2),
            plain_text(actor["place"] or "–"),
        )
    compared = plain_table("actors", "time s", "cost", "score", "")
    for one in plan["candidates"][:MOST_ROWS]:
        chosen = "chosen" if one["num_actors"] == plan["num_actors"] else ""
        cells = (number(one["time_s"], 2), number(one["cost"], 1), number(one["score"]))
        compared.add_row(str(one["num_actors"]), *cells, chosen)
    return [actors, compared]


def _holding_table(holding: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table("stage", "replicas", "saves s", "reason")
    for one in holding:
        table.add_row(one["stage"], one["decision"], number(one["predicted_saved_s"], 2), plain_text(one["reason"]))
    return table


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.0f} %"


def _grid() -> Table:
    return Table.grid(padding=(0, 2))
