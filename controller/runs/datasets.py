"""What can be asked of uploaded datasets: the REST API's counterpart, without HTTP."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from controller.runs.data.dataset_id import ContentHash, uri_of
from controller.runs.data.errors import DatasetInUse, InputRefused, UploadInvalid, UploadTooLarge
from controller.runs.data.library import ROWS_FOLDER, DatasetLibrary, StoredDataset
from controller.runs.data.reader import rows_of
from controller.runs.state import RunState
from shared.contracts.errors import StoreRefused
from shared.store.base import RunStore

BODY = "body"
"""The request's field that errors of the content are under."""
BUFFER_BYTES = 2**20
"""Bytes that are written at once."""


class Datasets:
    """The uploaded datasets of one controller."""

    def __init__(self, library: DatasetLibrary, runs: RunStore, *, max_bytes: int) -> None:
        self._library = library
        self._runs = runs
        self._max_bytes = max_bytes

    async def add(
        self, name: str, chunks: AsyncIterator[bytes], *, num_bytes: int | None = None
    ) -> tuple[StoredDataset, bool]:
        """Store what comes, if every row of it can be read; True if it was not there before.

        ``num_bytes`` is the length that was promised, if one was. Raises ``UploadInvalid`` naming the row,
        ``UploadTooLarge``, ``StoreRefused``, and whatever ends the chunks early; nothing is kept then.
        """
        content = ContentHash(name)
        if num_bytes is not None and num_bytes > self._max_bytes:
            raise self._too_large()
        try:
            folder = await asyncio.to_thread(self._library.begin)
            try:
                file = folder / ROWS_FOLDER / name
                received = await self._receive(file, chunks, content)
                num_rows, columns = await asyncio.to_thread(_checked, file)
                dataset = StoredDataset(
                    id=content.id,
                    name=name,
                    num_rows=num_rows,
                    num_bytes=received,
                    columns=columns,
                    created_at=time.time(),
                )
                return await asyncio.to_thread(self._library.keep, folder, dataset)
            finally:
                await asyncio.to_thread(self._library.discard, folder)
        except OSError as error:
            raise StoreRefused(f"the dataset cannot be stored: {error.strerror or error}") from error

    async def list(self) -> Sequence[StoredDataset]:
        """All datasets, oldest first."""
        return await asyncio.to_thread(self._library.list)

    async def get(self, id: str) -> StoredDataset:
        """One dataset. Raises ``DatasetUnknown``."""
        return await asyncio.to_thread(self._library.get, id)

    async def delete(self, id: str) -> None:
        """Forget a dataset. Raises ``DatasetUnknown``, ``DatasetInUse`` while a run that has not ended reads it."""
        await self.get(id)
        uri = uri_of(id)
        for record in await self._runs.list():
            data = record.config["data"]
            if uri in (*data["train_files"], *(data["val_files"] or ())) and not RunState(record.state).is_terminal:
                raise DatasetInUse(f"run {record.id} is {record.state} and reads dataset {id}: cancel it first")
        await asyncio.to_thread(self._library.delete, id)

    async def _receive(self, file: Path, chunks: AsyncIterator[bytes], content: ContentHash) -> int:
        received, buffer = 0, bytearray()
        with await asyncio.to_thread(file.open, "wb") as sink:
            async for chunk in chunks:
                content.update(chunk)
                received += len(chunk)
                if received > self._max_bytes:
                    raise self._too_large()
                buffer += chunk
                if len(buffer) >= BUFFER_BYTES:
                    await asyncio.to_thread(sink.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(sink.write, bytes(buffer))
        return received

    def _too_large(self) -> UploadTooLarge:
        return UploadTooLarge(
            f"a dataset has at most {self._max_bytes} bytes (RLHFLESS_MAX_DATASET_BYTES): split it, or put it under a "
            "root of the controller"
        )


def _checked(file: Path) -> tuple[int, tuple[str, ...]]:
    """The number of rows and their columns. Raises ``UploadInvalid`` with the first row that is wrong."""
    num_rows = 0
    columns: tuple[str, ...] = ()
    try:
        for row in rows_of(file, field=BODY):
            columns = columns or tuple(row.columns)
            num_rows += 1
    except InputRefused as error:
        [problem] = error.problems
        raise UploadInvalid(field=BODY, reason=problem.reason, suggestion=problem.suggestion) from error
    if num_rows == 0:
        raise UploadInvalid(field=BODY, reason=f"there is no row in {file.name}", suggestion="send a file with rows")
    return num_rows, columns
