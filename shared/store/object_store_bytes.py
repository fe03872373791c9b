"""Prefix KV bytes in an object store, by fsspec: for KV that neither a Redis nor a shared volume has room for."""

import asyncio
import contextlib
from collections.abc import Collection

import fsspec

from shared.contracts.errors import MissingBlob, StoreRefused, StoreUnavailable
from shared.contracts.policy import BlobRef


class ObjectStoreBytes:
    """``DroppableBytes`` under a URL such as ``s3://bucket/folder``. Objects appear whole or not at all.

    Credentials are those that the store's own library finds.
    """

    def __init__(self, url: str) -> None:
        """Raises ``ValueError`` where the library for this kind of store is not installed."""
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise ValueError(f"RLHFLESS_PREFIX_KV_URL needs a package that is not installed: {error.msg}") from None

    async def put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        """See ``DroppableBytes.put``."""
        try:
            await asyncio.to_thread(self._files.pipe_file, self._path(ref.id), bytes(data))
        except Exception as error:  # whatever the store's own library raises
            raise StoreRefused(f"the object store of RLHFLESS_PREFIX_KV_URL took no bytes: {error}") from error

    async def get(self, ref: BlobRef) -> memoryview:
        """See ``DroppableBytes.get``. Raises ``StoreUnavailable`` where the store does not answer."""
        try:
            return memoryview(bytearray(await asyncio.to_thread(self._files.cat_file, self._path(ref.id))))
        except FileNotFoundError as error:
            raise MissingBlob(f"prefix KV {ref.id} was dropped", blob=ref.id) from error
        except Exception as error:  # whatever the store's own library raises
            raise StoreUnavailable(f"the object store of RLHFLESS_PREFIX_KV_URL gave no bytes: {error}") from error

    async def delete(self, ids: Collection[str]) -> None:
        """See ``DroppableBytes.delete``."""
        for id in ids:
            await self._remove(self._path(id), recursive=False)

    async def delete_folder(self, folder: str) -> None:
        """See ``DroppableBytes.delete_folder``."""
        await self._remove(self._path(folder), recursive=True)

    async def _remove(self, path: str, *, recursive: bool) -> None:
        # What cannot be deleted now goes with its folder, or by the bucket's own rule for old objects.
        with contextlib.suppress(Exception):
            await asyncio.to_thread(self._files.rm, path, recursive=recursive)

    def _path(self, id: str) -> str:
        return f"{self._root.rstrip('/')}/{id}"
