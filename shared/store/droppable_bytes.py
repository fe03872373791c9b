"""Where the bytes of prefix KV are kept: a port whose adapters may lose anything at any time.

A blob's id is ``{run}/{weights digest}/kv-{digest}``, so what one policy version has lies in one folder.
"""

import hashlib
from collections.abc import Collection
from typing import Protocol

from shared.contracts.policy import BlobRef


class DroppableBytes(Protocol):
    """Adapters: Redis with an expiry, a folder, an object store."""

    async def put(self, ref: BlobRef, data: bytes | memoryview) -> None:
        """Keep the bytes under their id, again if they are there. Raises ``StoreRefused`` where they do not fit."""
        ...

    async def get(self, ref: BlobRef) -> memoryview:
        """The bytes in writable memory of the caller's own, not checked. Raises ``MissingBlob``."""
        ...

    async def delete(self, ids: Collection[str]) -> None:
        """Delete what is there of these."""
        ...

    async def delete_folder(self, folder: str) -> None:
        """Delete what lies under ``{run}/{weights digest}`` or ``{run}``, also what nobody knows the ids of."""
        ...


def kv_ref(run: str, weights_digest: str, data: bytes | memoryview) -> BlobRef:
    """The reference of a piece's bytes."""
    digest = hashlib.sha256(data).hexdigest()
    return BlobRef(id=f"{run}/{weights_digest}/kv-{digest[:32]}", num_bytes=len(data), sha256=digest)
