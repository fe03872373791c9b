"""The demo from start to end: a local stack, a training run with its progress, and what came of it."""

import argparse
import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from controller.cli.client import ControllerClient, Refused
from controller.cli.follow import follow
from controller.cli.local_paths import resolve_document
from controller.cli.settings import Connection
from controller.cli.tables import outcome_report, problem_table
from scripts.local_stack import REPOSITORY, StackFailed, local_stack

CONFIG = Path(__file__).with_name("addition.yaml")
STATE_DIR = REPOSITORY / ".rlhfless" / "quickstart"
UNFINISHED = ("queued", "running", "paused")


def main() -> None:
    """Run the demo; exit status 0 if it succeeded."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__)
    parser.add_argument("overrides", nargs="*", metavar="a.b=c", help="change the demo's config")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    asked = parser.parse_args()
    # SIGTERM ends the stack in order as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(stderr=asked.json, highlight=False)
    began_at = time.monotonic()
    try:
        console.print("starting Redis, the functions and the controller on this machine")
        with local_stack(STATE_DIR) as url:
            outcome = asyncio.run(train(url, asked.overrides, console))
    except KeyboardInterrupt:
        console.print("interrupted; all processes are ended")
        sys.exit(130)
    except StackFailed as error:
        console.print(str(error), style="red")
        sys.exit(1)
    except Refused as error:
        console.print(str(error), style="red")
        console.print(problem_table(error.problems))
        sys.exit(2)
    outcome["wall_s"] = time.monotonic() - began_at
    console.print(outcome_report(outcome))
    if asked.json:
        print(json.dumps(outcome))
    sys.exit(0 if outcome["state"] == "succeeded" else 1)


async def train(url: str, overrides: list[str], console: Console) -> dict[str, Any]:
    """Start the demo's run and follow it to its end."""
    document, _ = resolve_document(yaml.safe_load(CONFIG.read_text()), CONFIG.parent)
    async with ControllerClient(Connection(url=url, token=None)) as client:
        # A demo that was interrupted would go on first, and this one would wait for it.
        for unfinished in await client.runs(states=UNFINISHED):
            await client.cancel(unfinished["id"])
        run = await client.submit(document, overrides)
        return await follow(client, run["id"], console=console)


if __name__ == "__main__":
    main()
