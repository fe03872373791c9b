"""Follow a run to its end, showing its progress."""

from typing import Any

from rich.console import Console

from controller.cli.client import ControllerClient
from controller.cli.display import PHASES, open_display
from controller.cli.progress import ProgressView
from controller.cli.sse import ServerEvent
from controller.cli.text import number
from controller.runs.checkpoints import MODEL_FOLDER

ANNOUNCED_PHASES = ("starting", "evaluating")
"""Phases that take a while and end with no step."""
LOUD = ("warning", "error", "critical")
"""Levels of log messages that are shown beside the progress; the rest is in ``rlhfless logs``."""


async def follow(client: ControllerClient, run_id: str, *, console: Console) -> dict[str, Any]:
    """Show the run's progress until it has ended; returns what it came to (see ``outcome_of``)."""
    view = ProgressView()
    with open_display(console, run_id) as display:
        async for event in client.events(run_id):
            view = view.after(event.kind, event.data)
            line = notable(event)
            if line is not None:
                display.say(line)
            display.show(view)
    return await outcome_of(client, run_id)


async def outcome_of(client: ControllerClient, run_id: str) -> dict[str, Any]:
    """What the run has come to: ``run``, ``state``, ``reason``, ``accuracy_before``, ``accuracy_after``, ``steps``,
    ``total_steps``, ``wall_s``, ``train_s``, ``ledger`` (purpose → function → cost), ``checkpoint``, ``model_dir``.

    What is not known is ``None``; folders are the controller's.
    """
    record, summary = await client.run(run_id), await client.summary(run_id)
    info = record["info"]
    started_at, finished_at = info.get("started_at"), info.get("finished_at")
    checkpoint = summary["checkpoint"]
    return {
        "run": run_id,
        "state": record["state"],
        "reason": info.get("error"),
        "total_steps": info.get("total_steps"),
        "wall_s": None if started_at is None or finished_at is None else finished_at - started_at,
        **summary,
        "model_dir": None if checkpoint is None else f"{checkpoint}/{MODEL_FOLDER}",
    }


def notable(event: ServerEvent) -> str | None:
    """A line for an event that people want to have seen; ``None`` for one that only moves the progress."""
    data = event.data
    match event.kind:
        case "state":
            reason = data.get("reason")
            return f"run {data.get('state')}" + (f": {reason}" if reason else "")
        case "eval":
            rows = data.get("num_rows")
            return f"held-out accuracy {number(data.get('accuracy'))} after {data.get('step')} steps ({rows} prompts)"
        case "checkpoint":
            return f"checkpoint of step {data.get('step')} in {data.get('folder')}"
        case "progress" if data.get("phase") in ANNOUNCED_PHASES:
            return PHASES[data["phase"]]
        case "log" if data.get("level") in LOUD:
            return f"{data['level']}: {data.get('message')}"
    return None
