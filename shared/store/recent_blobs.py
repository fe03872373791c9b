"""A blob store that remembers what this process stored last, for other stages in the same process.

Where the learner's process also samples, the weights of the version that it has just published are in memory already,
in the published dtype: the rollout stage takes them from here, and they are not read back from the store (RLHFless,
arXiv 2602.22718, section on locality-aware placement).
"""

import asyncio
from collections.abc import Collection
from mmap import mmap

from shared.contracts.policy import BlobRef
from shared.store.blobs import BlobStore

REMEMBERED_KINDS = frozenset({"policy", "policy-adapter"})
"""What a stage reads that its own process has written: the last of each kind is kept in memory."""

COPIED_BYTES = 16 * 2**20
"""Copied at once: meanwhile nothing else in the process runs."""


class RecentBlobs:
    """Passes everything on to the blob store behind it."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._recent: dict[str, tuple[BlobRef, bytes]] = {}
        """By kind."""

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore``."""
        ref = await self._blobs.put(run, step, kind, data)
        if kind in REMEMBERED_KINDS:
            self._recent[kind] = (ref, data)
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore``."""
        data = self._remembered(ref)
        return await self._blobs.get(ref) if data is None else data

    async def view(self, ref: BlobRef) -> memoryview:
        """See ``BlobStore``. What is remembered is copied, for the caller may write to it."""
        data = self._remembered(ref)
        return await self._blobs.view(ref) if data is None else await asyncio.to_thread(_copy_of, data)

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore``."""
        return await self._blobs.purge(run, before_step=before_step, keep=keep)

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore``."""
        self._recent = {kind: (ref, data) for kind, (ref, data) in self._recent.items() if ref.id.split("/")[0] != run}
        await self._blobs.delete_run(run)

    def _remembered(self, ref: BlobRef) -> bytes | None:
        """The bytes, by their digest: the same ones may have been stored under another id."""
        return next((data for other, data in self._recent.values() if other.sha256 == ref.sha256), None)


def _copy_of(data: bytes) -> memoryview:
    """In parts, and into memory that nobody has filled with zeros before: the event loop goes on in between."""
    source, copy = memoryview(data), memoryview(mmap(-1, max(1, len(data))))[: len(data)]
    for start in range(0, len(data), COPIED_BYTES):
        copy[start : start + COPIED_BYTES] = source[start : start + COPIED_BYTES]
    return copy
