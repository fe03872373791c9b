"""Blobs as files in a directory: the local platform's default, or a volume that all functions share."""

import asyncio
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from shared.contracts.errors import StoreRefused
from shared.contracts.policy import BlobRef
from shared.store.blobs import make_ref, step_of, verified


class DirectoryBlobs:
    """``BlobStore`` in a directory. A file appears under its name only when it is complete."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``."""
        return await asyncio.to_thread(self._put, run, step, kind, data)

    def _put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        ref = make_ref(run, step, kind, data)
        path = self._root / ref.id
        if path.exists():
            return ref
        partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.rename(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StoreRefused(
                f"cannot keep {len(data)} bytes under the blob folder: {error.strerror}. Free some space or set "
                "RLHFLESS_BLOB_URL to a folder that can be written"
            ) from error
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``."""
        return await asyncio.to_thread(self._get, ref)

    def _get(self, ref: BlobRef) -> bytes:
        try:
            return verified(ref, (self._root / ref.id).read_bytes())
        except FileNotFoundError:
            return verified(ref, None)

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``."""
        return await asyncio.to_thread(self._purge, run, before_step, frozenset(keep))

    def _purge(self, run: str, before_step: int, keep: frozenset[str]) -> int:
        num_deleted = 0
        for folder in sorted((self._root / run).glob("[0-9]*")):
            if step_of(f"{run}/{folder.name}") >= before_step:
                continue
            for path in folder.iterdir():
                if f"{run}/{folder.name}/{path.name}" not in keep:
                    path.unlink(missing_ok=True)
                    num_deleted += 1
            if not any(folder.iterdir()):
                folder.rmdir()
        return num_deleted

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``."""
        await asyncio.to_thread(shutil.rmtree, self._root / run, ignore_errors=True)
