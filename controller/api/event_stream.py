"""Follow a run's event log until the run has ended and everything was sent, as events or as lines of text."""

import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from controller.api.json_text import presentable
from controller.api.request import Pace
from controller.runs.errors import RunUnknown
from controller.runs.service import RunService
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from shared.store.base import Event

log = logging.getLogger(__name__)

FIRST_UNIX_MS = 10**12
"""Event ids of Redis begin with the time in milliseconds; a smaller number is a plain count."""


async def followed(
    service: RunService, run: str, *, after: str, follow: bool, pace: Pace
) -> AsyncIterator[Event | None]:
    """The events after ``after``; ``None`` where nothing happened for a heartbeat.

    Ends when there is no more: at the end of the log without ``follow``, else when the run has ended too. Ends early,
    for the reader to come back, if the store is lost; and when the run is deleted.
    """
    try:
        while True:
            # The state first: what an ended run has to say is in its log soon after, so an empty read is the end.
            ended = RunState((await service.get(run)).state).is_terminal
            wait_s = (pace.settle_s if ended else pace.heartbeat_s) if follow else 0.0
            events = await service.events(run, after=after, wait_s=wait_s)
            for event in events:
                yield event
                after = event.id
            if not events:
                if ended or not follow:
                    return
                yield None
    except RunUnknown:
        return
    except StoreUnavailable as error:
        log.warning("a follower of %s was cut off: %s", run, error, extra={"run": run})


async def as_server_sent(events: AsyncIterator[Event | None]) -> AsyncIterator[bytes]:
    """Events in the form that browsers' ``EventSource`` reads; silence as comments."""
    # Sent at once: the reader sees that it is connected before anything happens.
    yield b": connected\n\n"
    async for event in events:
        if event is None:
            yield b": still here\n\n"
        else:
            data = json.dumps(presentable(event.data), allow_nan=False)
            yield f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode()


async def as_text(events: AsyncIterator[Event | None]) -> AsyncIterator[bytes]:
    """Events as lines for people."""
    async for event in events:
        line = None if event is None else log_line(event)
        if line is not None:
            yield f"{line}\n".encode()


def log_line(event: Event) -> str | None:
    """One event as a line with time and level; ``None`` for those that only move a progress bar."""
    level, said = _said(event.kind, presentable(event.data))
    if not said:
        return None
    # Continued lines are indented, so that no text of a model passes for a line of its own.
    return f"{_time_of(event)}{level.upper():<7} " + "\n    ".join(said.splitlines())


def _said(kind: str, data: dict[str, Any]) -> tuple[str, str]:
    match kind:
        case "log":
            return str(data.get("level", "info")), str(data.get("message", ""))
        case "state":
            reason = data.get("reason")
            failed = data.get("state") == RunState.FAILED
            return "error" if failed else "info", f"run {data.get('state')}" + (f": {reason}" if reason else "")
        case "step":
            return "info", f"step {data.get('step')}: {_step_metrics(data.get('metrics') or {})}"
        case "eval":
            return "info", f"evaluation at step {data.get('step')}: accuracy {_number(data.get('accuracy'))}"
        case "checkpoint":
            return "info", f"checkpoint of step {data.get('step')}: {data.get('folder')}"
    return "info", ""


def _step_metrics(metrics: dict[str, Any]) -> str:
    shown = {
        "reward": metrics.get("critic/score/mean"),
        "completion tokens": metrics.get("response_length/mean"),
        "seconds": metrics.get("timing_s/step"),
    }
    return ", ".join(f"{name} {_number(value)}" for name, value in shown.items() if value is not None)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else "unknown"


def _time_of(event: Event) -> str:
    milliseconds = int(event.id.partition("-")[0])
    if milliseconds < FIRST_UNIX_MS:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ ")
