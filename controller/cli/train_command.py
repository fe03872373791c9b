"""``rlhfless train``: read a config, have it checked, start it, follow it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.text import Text

from controller.cli.client import ControllerClient
from controller.cli.follow import follow
from controller.cli.local_paths import resolve_document, resolve_overrides
from controller.cli.run_commands import print_json, say
from controller.cli.session import ExitCode, error_console, fail, fail_config, result_console
from controller.cli.tables import outcome_report
from controller.cli.text import printable
from controller.runs.config.document import parse_document
from controller.runs.config.problems import ConfigInvalid
from controller.runs.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is to be run, with paths as the controller finds them."""

    document: Mapping[str, Any]
    overrides: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the run is started."""

    follow: bool
    as_json: bool
    idempotency_key: str | None


def read_config(file: Path, overrides: Sequence[str]) -> Config:
    """Read the config file; exits with a usage error if it cannot be read.

    Relative paths in the file are meant from its folder, those of overrides from the current one.
    """
    try:
        document = _as_json(parse_document(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise typer.Exit(fail(f"{file} cannot be read: {error.strerror}", ExitCode.USAGE)) from error
    except ConfigInvalid as error:
        raise typer.Exit(fail_config(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise typer.Exit(fail(f"{file} is not a config in YAML: {error}", ExitCode.USAGE)) from error
    document, notes = resolve_document(document, file.parent)
    overrides, more_notes = resolve_overrides(overrides, Path.cwd())
    for note in (*notes, *more_notes):
        _note(note)
    return Config(document=document, overrides=overrides)


async def check(client: ControllerClient, config: Config, *, as_json: bool) -> ExitCode:
    """Print what would run: the whole config as YAML on standard output, the rest on standard error."""
    answer = await client.dry_run(config.document, config.overrides)
    if as_json:
        print_json(answer)
        return ExitCode.OK
    for note in answer["notes"]:
        _note(note)
    rows = f"{answer['num_rows']} training rows, {answer['num_heldout_rows']} held-out rows"
    _note(f"{rows}, {answer['total_steps']} steps; nothing was started")
    print(yaml.safe_dump(answer["config"], sort_keys=False, allow_unicode=False), end="")
    return ExitCode.OK


async def start(client: ControllerClient, config: Config, options: Options) -> ExitCode:
    """Start the run and, unless told otherwise, follow it to its end."""
    record = await client.submit(config.document, config.overrides, idempotency_key=options.idempotency_key)
    run = record["id"]
    if not options.follow:
        if options.as_json:
            print_json(record)
        else:
            say(f"run {run} is {record['state']}: watch it with 'rlhfless logs -f {run}'")
        return ExitCode.OK
    _note(f"run {run} is {record['state']}")
    # With JSON on standard output, people watch standard error.
    console = error_console() if options.as_json else result_console()
    try:
        outcome = await follow(client, run, console=console)
    except BaseException:
        # Whatever ended the watching, Ctrl-C included, did not end the run.
        _note(f"run {run} goes on: 'rlhfless logs -f {run}' watches it, 'rlhfless cancel {run}' ends it")
        raise
    if options.as_json:
        print_json(outcome)
    else:
        console.print(outcome_report(outcome))
    if outcome["state"] == RunState.SUCCEEDED:
        return ExitCode.OK
    reason = f": {outcome['reason']}" if outcome["reason"] else ""
    return fail(f"run {run} {outcome['state']}{reason}", ExitCode.FAILURE)


def _as_json(document: dict[str, Any]) -> dict[str, Any]:
    """The document as it can be sent. YAML has dates: where one stands for a name, its text was meant."""
    content: dict[str, Any] = json.loads(json.dumps(document, default=str))
    return content


def _note(line: str) -> None:
    error_console().print(Text(printable(line), style="dim"), soft_wrap=True)
