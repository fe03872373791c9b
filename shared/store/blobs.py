"""The blob-store port: policy weights, learner state and batches of prompts, by opaque id.

A blob's id is ``{run}/{step}/{kind}-{digest}``. Named by its content it is written once: two attempts that make the
same bytes share a blob, two that differ cannot touch each other's.
"""

import hashlib
from collections.abc import Collection
from mmap import mmap
from typing import Protocol, TypeVar

from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef

Bytes = TypeVar("Bytes", bytes, mmap)


class BlobStore(Protocol):
    """Where large bytes are kept. Adapters: a directory, Redis, an object store, memory."""

    async def put(self, run: str, step: int, kind: str, data: bytes) -> BlobRef:
        """Store the bytes. ``kind`` is a word like ``weights``.

        Raises ``StoreRefused`` where they do not fit or cannot be written, ``ValueError`` for a run or kind that
        cannot be part of an id.
        """
        ...

    async def get(self, ref: BlobRef) -> bytes:
        """Read the bytes. Raises ``MissingBlob`` if they are gone or differ from their digest."""
        ...

    async def view(self, ref: BlobRef) -> memoryview:
        """The bytes in memory that is the caller's own and may be written to: for large blobs.

        Where the store has files nothing is copied; pages are read as they are used. Raises as ``get``.
        """
        ...

    async def purge(self, run: str, *, before_step: int, keep: Collection[str]) -> int:
        """Delete the run's blobs of steps before ``before_step`` whose ids are not in ``keep``; returns how many."""
        ...

    async def delete_run(self, run: str) -> None:
        """Delete all blobs of the run."""
        ...


def make_ref(run: str, step: int, kind: str, data: bytes) -> BlobRef:
    """The reference of these bytes."""
    if "/" in run + kind:
        raise ValueError(f"run {run!r} and kind {kind!r} are single parts of a blob's id")
    digest = hashlib.sha256(data).hexdigest()
    return BlobRef(id=f"{run}/{step:06d}/{kind}-{digest[:32]}", num_bytes=len(data), sha256=digest)


def step_of(blob_id: str) -> int:
    """The step under which a blob was stored."""
    return int(blob_id.split("/")[1])


def verified(ref: BlobRef, data: Bytes | None) -> Bytes:
    """The bytes, if they are what the reference promises."""
    if data is None:
        raise MissingBlob(f"blob {ref.id} is not in the store: it was deleted, or stores differ", blob=ref.id)
    if len(data) != ref.num_bytes or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise MissingBlob(f"blob {ref.id} is damaged: {len(data)} bytes do not match its digest", blob=ref.id)
    return data
