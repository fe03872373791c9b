"""Routes of schedules: plans of steps, what came of them, traces, and what a run would take."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse

from controller.api.json_text import presentable
from controller.api.openapi import JSON_LINES, SUBMISSION
from controller.api.request import RunName, Service
from controller.api.submission import read_submission
from controller.runs.expectation import Expectation
from controller.runs.expectation import as_json as expectation_json
from controller.runs.plan_records import PlanRecord, as_json

router = APIRouter(prefix="/v1", tags=["schedules"])

Step = Annotated[int, Path(ge=0, lt=2**53, description="The step, from 0.")]


@router.get("/runs/{run}/plan", response_model=PlanRecord)
async def get_latest_plan(run: RunName, service: Service) -> JSONResponse:
    """The plan of the step that runs, or of the last one."""
    return JSONResponse(presentable(as_json(await service.plan(run))))


@router.get("/runs/{run}/steps/{step}/plan", response_model=PlanRecord)
async def get_plan(run: RunName, step: Step, service: Service) -> JSONResponse:
    """The plan of a step: who samples what, what that was expected to take, and, once the step is done, what it took.

    A step that the run does not have is 404, one that is still to come 409.
    """
    return JSONResponse(presentable(as_json(await service.plan(run, step))))


@router.get("/runs/{run}/trace", response_class=StreamingResponse, responses=JSON_LINES)
async def get_trace(
    run: RunName,
    service: Service,
    from_step: Annotated[int, Query(ge=0, lt=2**53, description="Only steps from this one on.")] = 0,
) -> StreamingResponse:
    """What every completion of the finished steps was and where it ran, as JSON lines that a simulator can replay.

    A line of kind `step` comes before those of kind `completion` of the step. Of a long run the oldest steps are gone.
    """
    lines = await service.trace(run, from_step=from_step)
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)


@router.post("/plans", response_model=Expectation, openapi_extra=SUBMISSION)
async def expect_plan(request: Request, service: Service) -> JSONResponse:
    """What a step of a run with this config is expected to take and to cost, and what that is made of.

    The body is that of a start. Nothing is started, and no function needs to run.
    """
    submission = await read_submission(request)
    expected = await service.expect(submission.document, submission.overrides)
    return JSONResponse(presentable(expectation_json(expected)))
