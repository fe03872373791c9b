"""The prefix KV port: keys and values of token blocks, by the hash of the tokens; droppable at any time.

Nothing here is ever needed: who misses a block computes it. So storing never fails a caller; what is not kept is
counted.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef
from shared.contracts.prefill import PrefixKvHandle, PrefixKvScope

PREFIX_KV_TTL_S = 7200.0
"""How long KV is kept that nobody purges, since its run was lost: longer than a step takes."""


@dataclass(frozen=True, slots=True)
class KvBlock:
    """One block within a piece."""

    hash: str
    offset: int
    """Tokens of the piece before it."""
    num_tokens: int


@dataclass(frozen=True, slots=True)
class KvPiece:
    """Blocks that follow each other, as one blob."""

    blocks: tuple[KvBlock, ...]
    data: bytes | memoryview
    """Not changed after it is put."""


@dataclass(frozen=True, slots=True)
class PutReport:
    """What a put kept, and how many pieces it did not."""

    num_handles: int = 0
    stored_bytes: int = 0
    num_refused: int = 0

    def __add__(self, other: "PutReport") -> "PutReport":
        """Both together."""
        return PutReport(
            self.num_handles + other.num_handles,
            self.stored_bytes + other.stored_bytes,
            self.num_refused + other.num_refused,
        )


class PrefixKvStore(Protocol):
    """Handles of stored KV, and the bytes behind them."""

    async def put(self, run: str, scope: PrefixKvScope, pieces: Sequence[KvPiece]) -> PutReport:
        """Keep the pieces, as far as the run's byte budget allows, and let them be found.

        For room the KV of other policy versions goes, the oldest first, and never that of this one. A store that is
        full or does not answer refuses; nothing is raised for it.
        """
        ...

    async def find(self, run: str, scope: PrefixKvScope, block_hashes: Sequence[str]) -> dict[str, PrefixKvHandle]:
        """Handles by block hash, of those that are there, in one round trip. Raises ``StoreUnavailable``."""
        ...

    async def read(self, blob: BlobRef) -> memoryview:
        """A piece's bytes, writable and the caller's own, not checked yet.

        Raises ``MissingBlob`` where they are gone, and ``StoreUnavailable``.
        """
        ...

    async def purge(self, run: str, *, keep: Collection[str]) -> int:
        """Delete the KV of the run's policy versions but those whose weights digests are in ``keep``.

        Returns how many bytes that frees. Raises ``StoreUnavailable``.
        """
        ...

    async def delete_run(self, run: str) -> None:
        """Delete all KV of the run. Raises ``StoreUnavailable``."""
        ...


class NoPrefixKv:
    """A ``PrefixKvStore`` that keeps nothing: every actor computes its prompts itself."""

    async def put(self, run: str, scope: PrefixKvScope, pieces: Sequence[KvPiece]) -> PutReport:
        """Refuses all."""
        return PutReport(num_refused=len(pieces))

    async def find(self, run: str, scope: PrefixKvScope, block_hashes: Sequence[str]) -> dict[str, PrefixKvHandle]:
        """Finds nothing."""
        return {}

    async def read(self, blob: BlobRef) -> memoryview:
        """Raises ``MissingBlob``."""
        raise MissingBlob(f"no prefix KV is kept here, nor blob {blob.id}", blob=blob.id)

    async def purge(self, run: str, *, keep: Collection[str]) -> int:
        """Frees nothing."""
        return 0

    async def delete_run(self, run: str) -> None:
        """Has nothing to delete."""
