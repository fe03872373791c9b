"""``rlhfless top``: functions and replicas of a controller, live."""

import asyncio
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.live import Live

from controller.cli.client import ControllerClient, Refused, Unreachable
from controller.cli.run_commands import print_json
from controller.cli.session import ExitCode, result_console
from controller.cli.top_tables import top_screen
from controller.cli.top_view import TopData, top_view
from controller.runs.state import PENDING, RunState

AMOUNTS = ("cpu_seconds", "gpu_seconds", "usd")
"""What a function has cost, in its JSON."""


class Watch:
    """Asks the controller again and again. Of a run's history it reads only what it has not seen."""

    def __init__(self, client: ControllerClient) -> None:
        self._client = client
        self._last_steps: dict[str, Mapping[str, Any]] = {}

    async def look(self) -> TopData:
        """What is there now. Raises ``Unreachable`` and ``Refused``."""
        client = self._client
        held, functions, runs = await asyncio.gather(client.replicas(), client.functions(), client.runs(states=PENDING))
        await asyncio.gather(*(self._follow(run["id"]) for run in runs if run["state"] == RunState.RUNNING))
        self._last_steps = {run["id"]: self._last_steps[run["id"]] for run in runs if run["id"] in self._last_steps}
        return TopData(url=client.url, held=held, functions=functions, runs=runs, last_steps=self._last_steps)

    async def _follow(self, run: str) -> None:
        known = self._last_steps.get(run)
        lines = await self._client.history(run, after_step=None if known is None else known["step"])
        steps = [line for line in lines if line["kind"] == "step"]
        if steps:
            self._last_steps[run] = steps[-1]


async def top(client: ControllerClient, *, interval_s: float, once: bool, as_json: bool) -> ExitCode:
    """Show the controller's functions and replicas until Ctrl-C; once where standard output is no terminal."""
    console = result_console()
    if as_json:
        print_json(document(await Watch(client).look()))
    elif once or not console.is_terminal:
        console.print(top_screen(top_view(await Watch(client).look()), width=console.width))
    else:
        await follow(Watch(client), console, interval_s=interval_s)
    return ExitCode.OK


async def follow(watch: Watch, console: Console, *, interval_s: float) -> None:
    """Redraw every ``interval_s``. A controller that goes away is waited for, before its last state."""
    data = await watch.look()
    note = ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                screen = top_screen(top_view(data), width=console.width, height=console.height, note=note)
                live.update(screen, refresh=True)
                await asyncio.sleep(interval_s)
                try:
                    data, note = await watch.look(), ""
                except (Unreachable, Refused) as error:
                    if isinstance(error, Refused) and not error.retryable:
                        raise
                    note = str(error)
        except asyncio.CancelledError:
            # Ctrl-C is the way out, not a failure.
            return


def document(data: TopData) -> dict[str, Any]:
    """The answers as one JSON object: the functions with their cost, the runs with their last step."""
    costs = {cost["function"]: cost for cost in data.held["costs"]}
    functions = [
        {**function, **{name: costs.get(function["name"], {}).get(name, 0.0) for name in AMOUNTS}}
        for function in data.functions
    ]
    runs = [{**run, "last_step": data.last_steps.get(run["id"])} for run in data.runs]
    rest = {name: value for name, value in data.held.items() if name != "costs"}
    return {"url": data.url, **rest, "functions": functions, "runs": runs}
