"""Prefix KV handles in Redis, over bytes that are kept there or elsewhere, within a byte budget per run."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence

from pydantic import ValidationError

from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.policy import BlobRef
from shared.contracts.prefill import PrefixKvHandle, PrefixKvScope
from shared.store import keys
from shared.store.droppable_bytes import DroppableBytes, kv_ref
from shared.store.prefix_kv import PREFIX_KV_TTL_S, KvPiece, PutReport
from shared.store.redis_connection import RedisConnection, text

TTL_MS = int(PREFIX_KV_TTL_S * 1000)
WRITES_AT_ONCE = 4
"""Blobs that are written beside each other."""


class RedisPrefixKv:
    """``PrefixKvStore`` whose index is in Redis, usually an evictable one."""

    def __init__(self, redis: RedisConnection, content: DroppableBytes, *, budget_bytes: int) -> None:
        self._redis = redis
        self._content = content
        self._budget_bytes = budget_bytes

    async def put(self, run: str, scope: PrefixKvScope, pieces: Sequence[KvPiece]) -> PutReport:
        """See ``PrefixKvStore.put``."""
        if not pieces:
            return PutReport()
        # Off the loop: digests of many megabytes would hold up heartbeats.
        refs = await asyncio.to_thread(lambda: [kv_ref(run, scope.weights_digest, piece.data) for piece in pieces])
        try:
            fits = await self._reserve(run, scope.weights_digest, refs)
            kept = await self._keep(
                [entry for entry, fit in zip(zip(refs, pieces, strict=True), fits, strict=True) if fit]
            )
            kept = await self._note(run, scope, refs, kept)
        except (StoreRefused, StoreUnavailable):
            return PutReport(num_refused=len(pieces))
        num_handles = len({block.hash for _, piece in kept for block in piece.blocks})
        return PutReport(num_handles, sum(ref.num_bytes for ref, _ in kept), len(pieces) - len(kept))

    async def find(self, run: str, scope: PrefixKvScope, block_hashes: Sequence[str]) -> dict[str, PrefixKvHandle]:
        """See ``PrefixKvStore.find``."""
        if not block_hashes:
            return {}
        fields = [_field(scope, block_hash) for block_hash in block_hashes]
        stored = await self._redis.command("HMGET", keys.prefix_kv_handles(run, scope.weights_digest), *fields)
        found = {}
        for block_hash, body in zip(block_hashes, stored, strict=True):
            handle = None if body is None else _handle(body)
            # What stands under the field is believed only as far as it says the same.
            if handle is not None and (handle.scope, handle.block_hash) == (scope, block_hash):
                found[block_hash] = handle
        return found

    async def read(self, blob: BlobRef) -> memoryview:
        """See ``PrefixKvStore.read``."""
        return await self._content.get(blob)

    async def purge(self, run: str, *, keep: Collection[str]) -> int:
        """See ``PrefixKvStore.purge``."""
        versions, blobs = await self._redis.script(
            "purge_prefix_kv", [keys.prefix_kv_versions(run)], [keys.prefix_kv(run), *keep]
        )
        await self._content.delete([text(id) for id in blobs[::2]])
        for version in versions:
            await self._content.delete_folder(f"{run}/{text(version)}")
        return sum(int(size) for size in blobs[1::2])

    async def delete_run(self, run: str) -> None:
        """See ``PrefixKvStore.delete_run``."""
        await self.purge(run, keep=())
        await self._content.delete_folder(run)

    async def _reserve(self, run: str, weights_digest: str, refs: Sequence[BlobRef]) -> list[bool]:
        """Which blobs fit the budget. What goes for them is deleted."""
        sizes = [argument for ref in refs for argument in (ref.id, ref.num_bytes)]
        fits, dropped = await self._redis.script(
            "reserve_prefix_kv",
            [keys.prefix_kv_versions(run)],
            [keys.prefix_kv(run), weights_digest, self._budget_bytes, TTL_MS, *sizes],
        )
        await self._content.delete([text(id) for id in dropped])
        return [bool(int(does_fit)) for does_fit in fits]

    async def _keep(self, entries: Sequence[tuple[BlobRef, KvPiece]]) -> list[tuple[BlobRef, KvPiece]]:
        """Write the bytes, several at once, until one is refused: so would be what follows. Returns what is kept."""
        waiting, kept = deque(entries), list[tuple[BlobRef, KvPiece]]()

        async def write() -> None:
            while waiting:
                ref, piece = waiting.popleft()
                try:
                    await self._content.put(ref, piece.data)
                except (StoreRefused, StoreUnavailable):
                    waiting.clear()
                    return
                kept.append((ref, piece))

        await asyncio.gather(*(write() for _ in range(WRITES_AT_ONCE)))
        return kept

    async def _note(
        self,
        run: str,
        scope: PrefixKvScope,
        refs: Sequence[BlobRef],
        kept: Sequence[tuple[BlobRef, KvPiece]],
    ) -> list[tuple[BlobRef, KvPiece]]:
        """Let what is kept be found, and give back what was reserved for the rest. Returns what was not purged since.

        The bytes of all others are deleted: an earlier put may have kept them, and nobody accounts for them now.
        """
        ids = {ref.id for ref, _ in kept}
        unused = [ref.id for ref in refs if ref.id not in ids]
        handles = [part for ref, piece in kept for part in _handles(scope, ref, piece)]
        purged = await self._redis.script(
            "note_prefix_kv",
            [keys.prefix_kv_sizes(run, scope.weights_digest), keys.prefix_kv_handles(run, scope.weights_digest)],
            [TTL_MS, len(unused), *unused, *handles],
        )
        gone = {text(id) for id in purged}
        await self._content.delete([*unused, *gone])
        return [(ref, piece) for ref, piece in kept if ref.id not in gone]


def _handles(scope: PrefixKvScope, ref: BlobRef, piece: KvPiece) -> Iterator[str]:
    """Of each of the piece's handles its field, its body and the id of its blob."""
    for block in piece.blocks:
        handle = PrefixKvHandle(
            scope=scope, block_hash=block.hash, num_tokens=block.num_tokens, offset=block.offset, blob=ref
        )
        yield from (_field(scope, block.hash), handle.model_dump_json(), ref.id)


def _field(scope: PrefixKvScope, block_hash: str) -> str:
    """The whole key of a block but its run and its weights, which name the hash that it is a field of."""
    rest = "\n".join((scope.tokenizer_fingerprint, scope.dtype, scope.layout))
    return f"{hashlib.sha256(rest.encode()).hexdigest()[:16]}:{block_hash}"


def _handle(body: bytes) -> PrefixKvHandle | None:
    """The stored handle; ``None`` for what is none."""
    try:
        return PrefixKvHandle.model_validate_json(body)
    except ValidationError:
        return None
