"""Blobs in memory, for tests and simulation."""

from collections.abc import Collection

from shared.contracts.policy import BlobRef
from shared.store.blobs import make_ref, step_of, verified


class MemoryBlobs:
    """``BlobStore`` in a dictionary."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """See ``BlobStore.put``."""
        ref = make_ref(run, step, kind, data)
        self._blobs[ref.id] = data
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        """See ``BlobStore.get``."""
        return verified(ref, self._blobs.get(ref.id))

    async def view(self, ref: BlobRef) -> memoryview:
        """See ``BlobStore.view``."""
        return memoryview(bytearray(await self.get(ref)))

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """See ``BlobStore.purge``."""
        doomed = [id for id in self._blobs if id.startswith(f"{run}/") and step_of(id) < before_step and id not in keep]
        for id in doomed:
            del self._blobs[id]
        return len(doomed)

    async def delete_run(self, run: str) -> None:
        """See ``BlobStore.delete_run``."""
        await self.purge(run, before_step=2**31, keep=())
