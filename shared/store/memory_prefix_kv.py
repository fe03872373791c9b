"""Prefix KV in memory, for tests and simulation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from shared.contracts.errors import MissingBlob
from shared.contracts.policy import BlobRef
from shared.contracts.prefill import PrefixKvHandle, PrefixKvScope
from shared.store.droppable_bytes import kv_ref
from shared.store.prefix_kv import KvPiece, PutReport


@dataclass(slots=True)
class _Version:
    """What is kept of one policy version."""

    handles: dict[tuple[PrefixKvScope, str], PrefixKvHandle] = field(default_factory=dict)
    content: dict[str, bytes | memoryview] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.content.values()))


class MemoryPrefixKv:
    """``PrefixKvStore`` in dictionaries."""

    def __init__(self, *, budget_bytes: int = 2**30) -> None:
        self._budget_bytes = budget_bytes
        self._runs: dict[str, dict[str, _Version]] = {}
        """By run and weights digest; the version that was last stored to is the last."""

    async def put(self, run: str, scope: PrefixKvScope, pieces: Sequence[KvPiece]) -> PutReport:
        """See ``PrefixKvStore.put``."""
        versions = self._runs.setdefault(run, {})
        own = versions[scope.weights_digest] = versions.pop(scope.weights_digest, _Version())
        kept: list[BlobRef] = []
        num_handles = 0
        for piece in pieces:
            ref = kv_ref(run, scope.weights_digest, piece.data)
            if ref.id not in own.content and own.num_bytes + ref.num_bytes > self._budget_bytes:
                continue
            own.content[ref.id] = piece.data
            kept.append(ref)
            num_handles += len(piece.blocks)
            for block in piece.blocks:
                own.handles[scope, block.hash] = PrefixKvHandle(
                    scope=scope, block_hash=block.hash, num_tokens=block.num_tokens, offset=block.offset, blob=ref
                )
            while sum(version.num_bytes for version in versions.values()) > self._budget_bytes:
                del versions[next(iter(versions))]
        return PutReport(num_handles, sum(ref.num_bytes for ref in kept), len(pieces) - len(kept))

    async def find(self, run: str, scope: PrefixKvScope, block_hashes: Sequence[str]) -> dict[str, PrefixKvHandle]:
        """See ``PrefixKvStore.find``."""
        version = self._runs.get(run, {}).get(scope.weights_digest, _Version())
        return {hash: handle for hash in block_hashes if (handle := version.handles.get((scope, hash))) is not None}

    async def read(self, blob: BlobRef) -> memoryview:
        """See ``PrefixKvStore.read``."""
        run, digest, _ = blob.id.split("/")
        version = self._runs.get(run, {}).get(digest, _Version())
        if blob.id not in version.content:
            raise MissingBlob(f"prefix KV {blob.id} was dropped", blob=blob.id)
        return memoryview(bytearray(version.content[blob.id]))

    async def purge(self, run: str, *, keep: Collection[str]) -> int:
        """See ``PrefixKvStore.purge``."""
        versions = self._runs.get(run, {})
        return sum(versions.pop(digest).num_bytes for digest in list(versions) if digest not in keep)

    async def delete_run(self, run: str) -> None:
        """See ``PrefixKvStore.delete_run``."""
        self._runs.pop(run, None)
