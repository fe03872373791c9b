"""``rlhfless train``: read a config, have it checked, start it, follow it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.text import Text

from controller.cli.client import ControllerClient, Refused
from controller.cli.follow import follow
from controller.cli.local_paths import (
    DATA_KEYS,
    LocalPath,
    Rewrite,
    resolve_document,
    resolve_overrides,
    rewrite_document,
    rewrite_overrides,
)
from controller.cli.run_commands import print_json, say
from controller.cli.session import ExitCode, error_console, fail, fail_config, result_console
from controller.cli.tables import outcome_report
from controller.cli.text import printable
from controller.cli.upload import check_sendable, send
from controller.runs.config.document import parse_document
from controller.runs.config.problems import ConfigInvalid
from controller.runs.state import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What is to be run, with paths as they are written."""

    document: Mapping[str, Any]
    overrides: Sequence[str]
    folder: Path
    """Where the file lies: relative paths in it are meant from there, those of overrides from the current folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the run is started."""

    follow: bool
    as_json: bool
    idempotency_key: str | None
    upload: bool | None
    """Whether data files are sent; ``None``: if the controller's address is another machine's."""


def read_config(file: Path, overrides: Sequence[str]) -> Config:
    """Read the config file; exits with a usage error if it cannot be read."""
    try:
        document = _as_json(parse_document(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise typer.Exit(fail(f"{file} cannot be read: {error.strerror}", ExitCode.USAGE)) from error
    except ConfigInvalid as error:
        raise typer.Exit(fail_config(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise typer.Exit(fail(f"{file} is not a config in YAML: {error}", ExitCode.USAGE)) from error
    return Config(document=document, overrides=overrides, folder=file.parent)


async def located(client: ControllerClient, config: Config, *, upload: bool | None) -> Config:
    """The config with paths as the controller finds them.

    Paths of this machine become absolute or, with ``upload``, its data files are sent; unless that is said, it is done
    for a controller at another machine's address. Raises ``ConfigInvalid`` for what cannot be sent, before anything is.
    """
    if upload or (upload is None and not client.is_local):
        paths: list[LocalPath] = []

        def collect(path: LocalPath) -> str:
            paths.append(path)
            return path.given

        _rewritten(config, collect)
        uris = await send(client, check_sendable(paths), _note)
        return _rewritten(config, lambda path: uris[path.place] if path.key in DATA_KEYS else path.given)
    return located_here(config)


def located_here(config: Config) -> Config:
    """The config with the absolute paths of this machine, saying what they are."""
    document, notes = resolve_document(config.document, config.folder)
    overrides, more_notes = resolve_overrides(config.overrides, Path.cwd())
    for note in (*notes, *more_notes):
        _note(note)
    return replace(config, document=document, overrides=overrides)


async def check(client: ControllerClient, config: Config, *, upload: bool | None, as_json: bool) -> ExitCode:
    """Print what would run: the whole config as YAML on standard output, the rest on standard error."""
    config = await located(client, config, upload=upload)
    with _hint_to_upload(client, upload):
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
    config = await located(client, config, upload=options.upload)
    with _hint_to_upload(client, options.upload):
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


def _rewritten(config: Config, rewrite: Rewrite) -> Config:
    return replace(
        config,
        document=rewrite_document(config.document, config.folder, rewrite),
        overrides=rewrite_overrides(config.overrides, Path.cwd(), rewrite),
    )


@contextmanager
def _hint_to_upload(client: ControllerClient, upload: bool | None) -> Iterator[None]:
    """Where data files are refused and were not sent, say that they can be: an address of this machine may be passed
    on to another one."""
    try:
        yield
    except Refused as error:
        if upload is None and client.is_local and any(problem["field"] in DATA_KEYS for problem in error.problems):
            _note("if the controller runs on another machine, --upload sends it the data files of this one")
        raise


def _note(line: str) -> None:
    error_console().print(Text(printable(line), style="dim"), soft_wrap=True)
