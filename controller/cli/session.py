"""One command against one controller: its errors become one line and an exit code."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from controller.cli.client import ControllerClient, Refused, Unreachable
from controller.cli.settings import ConnectionInvalid, NoController, find_controller
from controller.cli.tables import problem_table
from controller.cli.text import printable
from controller.platforms.local.manifest_section import ManifestRefused
from controller.runs.config.problems import ConfigInvalid
from controller.settings import SettingsInvalid

UNPROCESSABLE = 422
PIPED_WIDTH = 160
"""Columns where standard output is no terminal: a log or another program has no edge to fold a table at."""


class ExitCode(IntEnum):
    """What the command's exit status means."""

    OK = 0
    FAILURE = 1
    """The controller refused, or the run did not succeed."""
    USAGE = 2
    """The command or the config is wrong."""
    UNREACHABLE = 3
    """No controller answers."""
    INTERRUPTED = 130


Action = Callable[[ControllerClient], Awaitable[ExitCode]]


def execute(
    context: typer.Context, action: Action, *, without: Callable[[], Awaitable[ExitCode]] | None = None
) -> NoReturn:
    """Run the action against the controller that the command's options name, and exit with what it returns.

    Where nothing says where a controller is, ``without`` is run instead, if there is one.
    """
    url, token = context.obj
    try:
        code = asyncio.run(_with_client(url, token, action, without))
    except (ConnectionInvalid, SettingsInvalid, ManifestRefused) as error:
        code = fail(str(error), ExitCode.USAGE)
    except (NoController, Unreachable) as error:
        code = fail(str(error), ExitCode.UNREACHABLE)
    except ConfigInvalid as error:
        code = fail_config(error)
    except Refused as error:
        code = fail(str(error), ExitCode.USAGE if error.status == UNPROCESSABLE else ExitCode.FAILURE)
        if error.problems:
            error_console().print(problem_table(error.problems))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    raise typer.Exit(code)


def fail(message: str, code: ExitCode) -> ExitCode:
    """Say what went wrong, in one line; returns the code."""
    error_console().print(Text.assemble(("error: ", "bold red"), printable(message)), soft_wrap=True)
    return code


def fail_config(error: ConfigInvalid) -> ExitCode:
    """Say what is wrong with a config that was not even sent."""
    code = fail("the config cannot be used; nothing was started", ExitCode.USAGE)
    rows = [
        {"field": problem.field, "reason": problem.reason, "suggestion": problem.suggestion}
        for problem in error.problems
    ]
    error_console().print(problem_table(rows))
    return code


def error_console() -> Console:
    """Standard error, for what is not the command's result."""
    return Console(stderr=True, highlight=False)


def result_console() -> Console:
    """Standard output."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


async def _with_client(
    url: str | None, token: str | None, action: Action, without: Callable[[], Awaitable[ExitCode]] | None
) -> ExitCode:
    try:
        connection = find_controller(url=url, token=token)
    except NoController:
        if without is None:
            raise
        return await without()
    async with ControllerClient(connection) as client:
        return await action(client)
