"""Routes of uploaded datasets."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from controller.api.dataset_models import DatasetList, DatasetView
from controller.api.errors import UnsupportedMediaType
from controller.api.openapi import DATASET_FILE
from controller.api.request import UploadedDatasets
from controller.runs.data.dataset_id import ID_PATTERN, NAME_PATTERN

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

Name = Annotated[
    str,
    Query(
        pattern=f"^{NAME_PATTERN}$",
        description="A name for people, which ends like the file: .jsonl, .ndjson, .json, .csv or .parquet.",
        examples=["train.jsonl"],
    ),
]
DatasetId = Annotated[str, Path(description=f"The dataset's id ({ID_PATTERN}).")]


@router.post(
    "", status_code=status.HTTP_201_CREATED, openapi_extra=DATASET_FILE, responses={200: {"model": DatasetView}}
)
async def upload_dataset(request: Request, response: Response, datasets: UploadedDatasets, name: Name) -> DatasetView:
    """Store a file of rows, for runs to read as `dataset://ID`.

    The body is the file. If its content is stored already, the answer (200) is the dataset that is there. A file with a
    row that cannot be read is 422 and names the row; nothing is stored then.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        raise UnsupportedMediaType("the body is the file itself, not a form: send it with curl --data-binary @FILE")
    length = request.headers.get("content-length", "")
    try:
        dataset, is_new = await datasets.add(
            name, request.stream(), num_bytes=int(length) if length.isascii() and length.isdigit() else None
        )
    except ClientDisconnect as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "the upload was cut off; nothing was stored") from error
    if not is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/datasets/{dataset.id}"
    return DatasetView.of(dataset)


@router.get("")
async def list_datasets(datasets: UploadedDatasets) -> DatasetList:
    """All uploaded datasets, the newest first."""
    return DatasetList(datasets=tuple(DatasetView.of(dataset) for dataset in reversed(await datasets.list())))


@router.get("/{dataset}")
async def get_dataset(dataset: DatasetId, datasets: UploadedDatasets) -> DatasetView:
    """One uploaded dataset."""
    return DatasetView.of(await datasets.get(dataset))


@router.delete("/{dataset}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_dataset(dataset: DatasetId, datasets: UploadedDatasets) -> None:
    """Delete an uploaded dataset, unless a run that has not ended reads it."""
    await datasets.delete(dataset)
