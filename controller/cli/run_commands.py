"""The commands about runs and functions that are there: each asks the controller and prints the answer."""

import json
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from controller.cli.client import ControllerClient
from controller.cli.follow import outcome_of
from controller.cli.session import ExitCode, result_console
from controller.cli.tables import run_report, run_table
from controller.cli.text import printable


async def list_runs(client: ControllerClient, states: Sequence[str], limit: int, *, as_json: bool) -> ExitCode:
    """``rlhfless runs``."""
    runs = await client.runs(states=states, limit=limit)
    if as_json:
        print_json(runs)
    elif runs:
        result_console().print(run_table(runs))
    else:
        say("no runs: start one with 'rlhfless train FILE.yaml'")
    return ExitCode.OK


async def show(client: ControllerClient, run: str, *, as_json: bool) -> ExitCode:
    """``rlhfless show``."""
    record, outcome, checkpoints = await client.run(run), await outcome_of(client, run), await client.checkpoints(run)
    if as_json:
        print_json(record | {"outcome": outcome, "checkpoints": checkpoints})
    else:
        result_console().print(run_report(record, outcome, checkpoints))
    return ExitCode.OK


async def logs(client: ControllerClient, run: str, *, follow: bool) -> ExitCode:
    """``rlhfless logs``."""
    async for line in client.logs(run, follow=follow):
        say(line)
    return ExitCode.OK


async def cancel(client: ControllerClient, run: str, *, as_json: bool) -> ExitCode:
    """``rlhfless cancel``."""
    _answer(await client.cancel(run), "is being cancelled", as_json=as_json)
    return ExitCode.OK


async def resume(client: ControllerClient, run: str, *, as_json: bool) -> ExitCode:
    """``rlhfless resume``."""
    _answer(await client.resume(run), "is queued again", as_json=as_json)
    return ExitCode.OK


async def delete(client: ControllerClient, run: str) -> ExitCode:
    """``rlhfless delete``."""
    await client.delete(run)
    say(f"run {run} is deleted; its checkpoints on disk stay")
    return ExitCode.OK


def say(line: str) -> None:
    """Print a line of the result."""
    result_console().print(Text(printable(line)), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value for programs, in one line."""
    print(json.dumps(value), flush=True)


def _answer(record: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json(record)
    else:
        say(f"run {record['id']} {sentence}")
