"""Prefix KV bytes as files in a folder: memory that the processes of one machine share, or a shared volume."""

import asyncio
import contextlib
import mmap
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from shared.contracts.errors import MissingBlob, StoreRefused
from shared.contracts.policy import BlobRef
from shared.store.prefix_kv import PREFIX_KV_TTL_S


class DirectoryBytes:
    """``DroppableBytes`` in a folder. A file appears under its name only when it is complete."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._looked_at = 0.0

    async def put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        """See ``DroppableBytes.put``."""
        await asyncio.to_thread(self._put, ref, data)

    def _put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        self._forget_old()
        path = self._root / ref.id
        partial = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(data)
            partial.rename(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise StoreRefused(f"the folder of RLHFLESS_PREFIX_KV_URL takes no more: {error.strerror}") from error

    def _forget_old(self) -> None:
        """Delete what nobody purged in its time, now and then: a folder lets nothing expire by itself."""
        now = time.time()
        if now - self._looked_at < PREFIX_KV_TTL_S / 8:
            return
        self._looked_at = now
        for path in self._root.glob("*/*/*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < now - PREFIX_KV_TTL_S:
                    path.unlink()

    async def get(self, ref: BlobRef) -> memoryview:
        """See ``DroppableBytes.get``. Nothing is copied; pages are read as they are used."""
        return await asyncio.to_thread(self._get, ref)

    def _get(self, ref: BlobRef) -> memoryview:
        try:
            with (self._root / ref.id).open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise MissingBlob(f"prefix KV {ref.id} was dropped", blob=ref.id) from error

    async def delete(self, ids: Collection[str]) -> None:
        """See ``DroppableBytes.delete``."""
        await asyncio.to_thread(self._delete, tuple(ids))

    def _delete(self, ids: Collection[str]) -> None:
        for id in ids:
            with contextlib.suppress(OSError):
                (self._root / id).unlink()

    async def delete_folder(self, folder: str) -> None:
        """See ``DroppableBytes.delete_folder``."""
        await asyncio.to_thread(shutil.rmtree, self._root / folder, ignore_errors=True)
