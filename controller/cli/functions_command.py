"""``rlhfless functions``: list, show and change the functions."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from rich.text import Text

from controller.cli.client import ControllerClient
from controller.cli.run_commands import print_json, say
from controller.cli.session import ExitCode, error_console, result_console
from controller.cli.tables import function_report, function_table
from controller.cli.text import printable

OVER = ("done", "failed")
LOOK_EVERY_S = 0.5
LOOK_EVERY_AT_MOST_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be different."""

    image: str | None
    env: Sequence[str]
    """``NAME=value``"""
    unset: Sequence[str]
    """Names."""
    requests: Mapping[str, str | None]
    gpus: int | None
    when: str

    def body(self) -> dict[str, Any]:
        """The request. Raises ``typer.BadParameter``."""
        env: dict[str, str | None] = dict.fromkeys(self.unset)
        for assignment in self.env:
            name, equals, value = assignment.partition("=")
            if not name or not equals:
                raise typer.BadParameter(f"write {assignment!r} as NAME=value", param_hint="--env")
            env[name] = value
        requests = {name: amount for name, amount in self.requests.items() if amount is not None}
        limits = {} if self.gpus is None else {"nvidia.com/gpu": str(self.gpus)}
        if "memory" in requests:
            # Knative's pods have both, and a request above the limit is refused.
            limits["memory"] = requests["memory"]
        return {
            **({} if self.image is None else {"image": self.image}),
            "env": env,
            "resources": {"requests": requests, "limits": limits},
            "when": self.when,
        }


async def list_functions(client: ControllerClient, *, as_json: bool) -> ExitCode:
    """``rlhfless functions list``."""
    functions = await client.functions()
    if as_json:
        print_json(functions)
    else:
        result_console().print(function_table(functions))
    return ExitCode.OK


async def show_function(client: ControllerClient, name: str, *, as_json: bool) -> ExitCode:
    """``rlhfless functions show``."""
    function = await client.function(name)
    if as_json:
        print_json(function)
    else:
        result_console().print(function_report(function))
    return ExitCode.OK


async def set_function(client: ControllerClient, name: str, wanted: Wanted, *, wait: bool, as_json: bool) -> ExitCode:
    """``rlhfless functions set``: fails where the function is back at its old revision."""
    function = await client.change_function(name, wanted.body())
    if wait:
        function = await _followed(client, function)
    change = function["change"]
    if as_json:
        print_json(function)
    elif change["state"] == "done":
        say(f"{name} is {function['revision']} now: {function['image']}")
    elif change["state"] not in OVER:
        say(f"{name} will be changed ({change['when']}): 'rlhfless functions show {name}' shows how it goes on")
    if change["state"] != "failed":
        return ExitCode.OK
    error_console().print(Text.assemble(("error: ", "bold red"), printable(change["reason"])), soft_wrap=True)
    return ExitCode.FAILURE


async def _followed(client: ControllerClient, function: dict[str, Any]) -> dict[str, Any]:
    """Look until the change is over, and say each thing that happens."""
    said, pause_s = "", LOOK_EVERY_S
    while function["change"]["state"] not in OVER:
        if function["change"]["state"] != said:
            said = function["change"]["state"]
            error_console().print(Text(f"{function['name']}: {said}", style="dim"), soft_wrap=True)
        await asyncio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, LOOK_EVERY_AT_MOST_S)
        function = await client.function(function["name"])
    return function
