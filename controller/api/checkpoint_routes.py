"""Routes of a run's checkpoints."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import StreamingResponse

from controller.api.checkpoint_archive import plan_archive, stream_archive
from controller.api.models import CheckpointList, CheckpointView
from controller.api.openapi import TAR_ARCHIVE
from controller.api.request import RunName, Service

router = APIRouter(prefix="/v1/runs/{run}/checkpoints", tags=["checkpoints"])

Step = Annotated[int, Path(ge=0, lt=2**53, description="Steps finished when the checkpoint was written.")]


@router.get("")
async def list_checkpoints(run: RunName, service: Service) -> CheckpointList:
    """The run's checkpoints, the oldest first."""
    checkpoints = await service.checkpoints(run)
    return CheckpointList(checkpoints=tuple(CheckpointView.of(run, checkpoint) for checkpoint in checkpoints))


@router.get("/{step}/download", response_class=StreamingResponse, responses=TAR_ARCHIVE)
async def download_checkpoint(run: RunName, step: Step, service: Service) -> StreamingResponse:
    """A checkpoint's folder as a tar archive."""
    folder = await service.checkpoint_folder(run, step)
    archive = await asyncio.to_thread(plan_archive, folder)
    return StreamingResponse(
        stream_archive(archive),
        media_type="application/x-tar",
        headers={
            "Content-Disposition": f'attachment; filename="{run}-step-{step}.tar"',
            "Content-Length": str(archive.num_bytes),
        },
    )
