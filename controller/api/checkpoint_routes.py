"""Routes of a run's checkpoints."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from controller.api.checkpoint_archive import plan_archive, stream_archive
from controller.api.models import CheckpointList, CheckpointView
from controller.api.openapi import TAR_ARCHIVE
from controller.api.request import RunName, Service
from controller.runs.checkpoints import MODEL_FOLDER

router = APIRouter(prefix="/v1/runs/{run}/checkpoints", tags=["checkpoints"])

Step = Annotated[int, Path(ge=0, lt=2**53, description="Steps finished when the checkpoint was written.")]
Part = Annotated[
    Literal["all", "model"],
    Query(description="`model`: only the folder that `transformers` loads, as `huggingface/`; without the states."),
]


@router.get("")
async def list_checkpoints(run: RunName, service: Service) -> CheckpointList:
    """The run's checkpoints, the oldest first."""
    checkpoints = await service.checkpoints(run)
    return CheckpointList(checkpoints=tuple(CheckpointView.of(run, checkpoint) for checkpoint in checkpoints))


@router.get("/{step}/download", response_class=StreamingResponse, responses=TAR_ARCHIVE)
async def download_checkpoint(run: RunName, step: Step, service: Service, part: Part = "all") -> StreamingResponse:
    """A checkpoint's folder as a tar archive."""
    folder = await service.checkpoint_folder(run, step)
    archive = await asyncio.to_thread(plan_archive, folder if part == "all" else folder / MODEL_FOLDER)
    return StreamingResponse(
        stream_archive(archive),
        media_type="application/x-tar",
        headers={
            "Content-Disposition": f'attachment; filename="{run}-step-{step}.tar"',
            "Content-Length": str(archive.num_bytes),
        },
    )
