"""What the routes take from a request besides its body: the service, names in the path, places in a log."""

import re
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError

from controller.runs.datasets import Datasets
from controller.runs.errors import RunUnknown
from controller.runs.service import RunService
from shared.contracts.ids import is_identifier

EVENT_ID = re.compile(r"([0-9]{1,20})(-([0-9]{1,20}))?")
LARGEST_EVENT_ID = 2**64 - 1
START = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of a followed log, in seconds."""

    heartbeat_s: float = 5.0
    """Longest silence: then a sign of life is sent, by which both ends notice a lost connection."""
    settle_s: float = 0.5
    """How long an ended run's last words are waited for: they are written after its state."""


def _service(request: Request) -> RunService:
    return cast(RunService, request.app.state.service)


def _pace(request: Request) -> Pace:
    return cast(Pace, request.app.state.pace)


def _run_id(run: Annotated[str, Path(description="The run's id.", examples=["addition-3f9a"])]) -> str:
    if not is_identifier(run):
        raise RunUnknown("no run has a name like this: ids have lower case letters, digits and dashes")
    return run


def _event_id(
    after: Annotated[str | None, Query(description="Id of the last event that is known already.")] = None,
    last_event_id: Annotated[str | None, Header(description="The same, as browsers send it.")] = None,
) -> str:
    # A browser that reconnects repeats the URL of its first request, so the header is the newer of the two.
    text = last_event_id or after or START
    match = EVENT_ID.fullmatch(text)
    if match is None or any(int(part) > LARGEST_EVENT_ID for part in (match[1], match[3] or "0")):
        place = ("query", "after") if not last_event_id else ("header", "last-event-id")
        raise RequestValidationError(
            [{"loc": place, "msg": "it is not the id of an event, like 1700000000000-0", "type": "event_id"}]
        )
    return text


def _datasets(service: Annotated[RunService, Depends(_service)]) -> Datasets:
    return service.datasets


Service = Annotated[RunService, Depends(_service)]
UploadedDatasets = Annotated[Datasets, Depends(_datasets)]
FollowPace = Annotated[Pace, Depends(_pace)]
RunName = Annotated[str, Depends(_run_id)]
EventId = Annotated[str, Depends(_event_id)]
