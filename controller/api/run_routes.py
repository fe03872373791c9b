"""Routes of runs: start, look at, follow, end."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response, status
from fastapi.responses import StreamingResponse

from controller.api.event_stream import as_server_sent, as_text, followed
from controller.api.json_text import presentable
from controller.api.models import DryRunView, RunHistory, RunList, RunOutcome, RunSummary, RunView
from controller.api.openapi import EVENT_STREAM, PLAIN_TEXT, SUBMISSION
from controller.api.request import START, EventId, FollowPace, RunName, Service
from controller.api.submission import read_submission
from controller.runs.state import RunState

router = APIRouter(prefix="/v1/runs", tags=["runs"])

IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="A name of your choice for this request. The same request again returns the run that it started.",
    ),
]
DryRun = Annotated[bool, Query(description="Check everything and start nothing.")]


@router.post("", status_code=status.HTTP_201_CREATED, openapi_extra=SUBMISSION, responses={200: {"model": DryRunView}})
async def start_run(
    request: Request,
    response: Response,
    service: Service,
    dry_run: DryRun = False,
    idempotency_key: IdempotencyKey = None,
) -> RunView | DryRunView:
    """Start a run, or put it in the queue. With `dry_run` the config is checked and the answer (200) is what would run.

    The body is a config, or `{"config": {...}, "overrides": ["a.b=c"]}`. A config that cannot run is 422 and says, for
    each problem, the field, the reason and what to do; nothing is started then.
    """
    submission = await read_submission(request)
    if dry_run:
        response.status_code = status.HTTP_200_OK
        return DryRunView.of(await service.check(submission.document, submission.overrides))
    record = await service.submit(submission.document, submission.overrides, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/v1/runs/{record.id}"
    return RunView.of(record)


@router.get("")
async def list_runs(
    service: Service,
    state: Annotated[list[RunState] | None, Query(description="Only runs in one of these states.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> RunList:
    """All runs, the newest first."""
    records = [record for record in await service.list() if not state or record.state in state]
    return RunList(runs=tuple(RunSummary.of(record) for record in records[: -limit - 1 : -1]))


@router.get("/{run}")
async def get_run(run: RunName, service: Service) -> RunView:
    """One run."""
    return RunView.of(await service.get(run))


@router.get("/{run}/events", response_class=StreamingResponse, responses=EVENT_STREAM)
async def follow_events(
    run: RunName,
    service: Service,
    pace: FollowPace,
    after: EventId,
    follow: Annotated[bool, Query(description="Wait for what happens next, until the run has ended.")] = True,
) -> StreamingResponse:
    """What happens in the run, as server-sent events.

    Kinds: `state`, `step`, `eval`, `checkpoint`, `progress`, `log`. Resumable by the `Last-Event-ID` header.
    """
    await service.get(run)
    events = followed(service, run, after=after, follow=follow, pace=pace)
    # Proxies must not hold events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(as_server_sent(events), media_type="text/event-stream", headers=headers)


@router.get("/{run}/logs", response_class=StreamingResponse, responses=PLAIN_TEXT)
async def read_logs(
    run: RunName,
    service: Service,
    pace: FollowPace,
    follow: Annotated[bool, Query(description="Wait for what is said next, until the run has ended.")] = False,
) -> StreamingResponse:
    """What happened in the run, a line each."""
    await service.get(run)
    events = followed(service, run, after=START, follow=follow, pace=pace)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(as_text(events), media_type="text/plain; charset=utf-8", headers=headers)


@router.get("/{run}/metrics")
async def get_history(
    run: RunName,
    service: Service,
    after_step: Annotated[int | None, Query(ge=0, lt=2**53, description="Only lines of later steps.")] = None,
) -> RunHistory:
    """What the run measured, a line per step, evaluation and checkpoint."""
    lines = await service.history(run)
    kept = (line for line in lines if after_step is None or line["step"] > after_step)
    return RunHistory(run=run, history=tuple(presentable(line) for line in kept))


@router.get("/{run}/summary")
async def get_outcome(run: RunName, service: Service) -> RunOutcome:
    """What the run has come to so far: accuracy before and after, time, cost, and where the model lies."""
    return RunOutcome.model_validate(presentable(await service.summary(run)))


@router.post("/{run}/cancel")
async def cancel_run(run: RunName, service: Service) -> RunView:
    """End the run. What it has checkpointed stays, and it can be resumed."""
    return RunView.of(await service.cancel(run))


@router.post("/{run}/resume")
async def resume_run(run: RunName, service: Service) -> RunView:
    """Queue a failed, cancelled or paused run again: it goes on at the step where it stood."""
    return RunView.of(await service.resume(run))


@router.delete("/{run}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_run(run: RunName, service: Service) -> None:
    """Delete an ended run's record, history and stored data."""
    await service.delete(run)
