"""Blobs in an object store, by fsspec: for models that fit neither Redis nor a volume that all pods can mount.

An object appears whole or not at all, under a name that holds its digest: it is written once, and two writers of the
same bytes do each other no harm. Credentials are those that the store's own library finds (environment, a mounted file,
the node's identity); they are part of no reference, message or log line.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import fsspec

from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.ids import is_identifier
from shared.contracts.policy import BlobRef
from shared.store.blobs import make_ref, step_of, verified

T = TypeVar("T")

NUM_ATTEMPTS = 4
FIRST_PAUSE_S = 0.5
_IS_NOT_THERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class ObjectBlobs:
    """``BlobStore`` under a URL such as ``s3://bucket/folder``."""

    def __init__(self, url: str, *, first_pause_s: float = FIRST_PAUSE_S, **options: Any) -> None:
        """``options`` are the library's own, for tests. Raises ``ValueError`` where it is not installed."""
        try:
            # Other processes write too, so no listing and no size is remembered.
            files, root = fsspec.core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
        except ImportError as error:
            raise ValueError(f"RLHFLESS_BLOB_URL needs a package that is not installed: {error.msg}") from None
        self._files = files
        self._root = root.rstrip("/")
        self._first_pause_s = first_pause_s

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``. Raises ``StoreUnavailable`` where the store does not answer."""
        ref = make_ref(run, step, kind, data)
        if await self._size(ref) != len(data):
            await self._do("keep", self._files.pipe_file, self._path(ref.id), data)
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``. Raises ``StoreUnavailable`` where the store does not answer."""
        try:
            data = await self._do("read", self._files.cat_file, self._path(ref.id))
        except _IS_NOT_THERE:
            data = None
        return await asyncio.to_thread(verified, ref, data)

    async def view(self, ref: BlobRef) -> memoryview:
        """See ``BlobStore.view``. Raises ``StoreUnavailable`` where the store does not answer."""
        return memoryview(bytearray(await self.get(ref)))

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``. Raises ``StoreUnavailable`` where the store does not answer."""
        doomed = [id for id in await self._ids(run) if step_of(id) < before_step and id not in keep]
        for id in doomed:
            await self._delete(id)
        return len(doomed)

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``. Raises ``StoreUnavailable`` where the store does not answer."""
        for id in await self._ids(run):
            await self._delete(id)

    async def _size(self, ref: BlobRef) -> int | None:
        try:
            return (await self._do("look for", self._files.info, self._path(ref.id)))["size"]  # type: ignore[no-any-return]
        except _IS_NOT_THERE:
            return None

    async def _ids(self, run: str) -> list[str]:
        if not is_identifier(run):
            raise ValueError(f"{run!r} is no run")
        try:
            paths = await self._do("list", self._files.find, self._path(run))
        except _IS_NOT_THERE:
            return []
        # Some libraries name their paths with a slash in front, others without.
        prefix = self._root.lstrip("/")
        return sorted(path.lstrip("/").removeprefix(prefix).lstrip("/") for path in paths)

    async def _delete(self, id: str) -> None:
        try:
            await self._do("delete", self._files.rm_file, self._path(id))
        except _IS_NOT_THERE:
            return

    async def _do(self, doing: str, function: Callable[..., T], *arguments: object) -> T:
        """One request, again where the store had a bad moment.

        Raises ``FileNotFoundError`` and its like, ``StoreRefused`` where the store says no, ``StoreUnavailable``.
        """
        pause_s = self._first_pause_s
        for tries_left in reversed(range(NUM_ATTEMPTS)):
            try:
                return await asyncio.to_thread(function, *arguments)
            except _IS_NOT_THERE:
                if doing == "keep":
                    raise StoreRefused(_message(doing, "there is no such bucket or folder")) from None
                raise
            except PermissionError as error:
                # Without the error itself: what a store says about credentials may quote them.
                raise StoreRefused(_message(doing, f"permission denied ({type(error).__name__})")) from None
            except Exception as error:  # whatever the store's own library raises
                if not tries_left:
                    raise StoreUnavailable(_message(doing, type(error).__name__)) from None
            await asyncio.sleep(pause_s)
            pause_s *= 2
        raise AssertionError("there is at least one attempt")

    def _path(self, id: str) -> str:
        return f"{self._root}/{id}"


def _message(doing: str, why: str) -> str:
    return (
        f"cannot {doing} blobs in the object store: {why}. Check the bucket that RLHFLESS_BLOB_URL names, the way to "
        "it and the credentials that its library finds"
    )
