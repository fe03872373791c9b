"""Blocks of prefix KV by their hashes, checked, until a deadline.

hashes ─▶ handles (one round trip) ─▶ blobs (beside each other) ─▶ checked ─▶ blocks, or why they did not come
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from shared.codec.prefix_kv import DamagedKv, KvTensors, decode_kv
from shared.contracts.errors import MissingBlob, StoreRefused, StoreUnavailable
from shared.contracts.policy import BlobRef
from shared.contracts.prefill import PrefixKvHandle, PrefixKvScope
from shared.inference.block_hash import BLOCK_TOKENS, Block
from shared.inference.prefix_kv import KvLayout, PrefixKv
from shared.store.prefix_kv import PrefixKvStore

READS_AT_ONCE = 8
"""Blobs that are read beside each other."""


class Absent(Enum):
    """Why there is no KV of a block."""

    MISSING = "missing"
    LATE = "late"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class BlockKv:
    """Tokens of a block, or of several that follow each other, within the tensors of their blob."""

    tensors: KvTensors
    start: int
    end: int


class BlockReader:
    """Reads the KV of blocks, until a deadline."""

    def __init__(self, store: PrefixKvStore, run: str, scope: PrefixKvScope, layout: KvLayout) -> None:
        self._store = store
        self._run = run
        self._scope = scope
        self._layout = layout
        self._places = asyncio.Semaphore(READS_AT_ONCE)
        self.fetched_bytes = 0

    async def read(self, chains: Collection[Sequence[Block]], until: float) -> dict[str, BlockKv | Absent]:
        """The KV of each block by hash, or why it did not come. ``until`` is on the clock of ``time.perf_counter``."""
        blocks = {block.hash: block for chain in chains for block in chain}
        try:
            async with asyncio.timeout(max(0.0, until - time.perf_counter())):
                handles = await self._store.find(self._run, self._scope, list(blocks))
        except (StoreRefused, StoreUnavailable, TimeoutError):
            return dict.fromkeys(blocks, Absent.LATE)
        wanted = {handles[block.hash].blob for chain in chains for block in _found_first(chain, handles)}
        tensors = await self._read_all(wanted, until)
        return {block.hash: self._block(block, handles.get(block.hash), tensors) for chain in chains for block in chain}

    async def _read_all(self, blobs: Collection[BlobRef], until: float) -> dict[BlobRef, KvTensors | Absent]:
        reading = {blob: asyncio.create_task(self._read_blob(blob)) for blob in blobs}
        try:
            if reading:
                await asyncio.wait(reading.values(), timeout=max(0.0, until - time.perf_counter()))
            return {blob: task.result() if task.done() else Absent.LATE for blob, task in reading.items()}
        finally:
            for task in reading.values():
                task.cancel()
            await asyncio.gather(*reading.values(), return_exceptions=True)

    async def _read_blob(self, blob: BlobRef) -> KvTensors | Absent:
        async with self._places:
            try:
                data = await self._store.read(blob)
            except MissingBlob:
                return Absent.MISSING
            except (StoreRefused, StoreUnavailable):
                return Absent.LATE
            self.fetched_bytes += len(data)
            # Off the loop, and not on the compute thread, which may be decoding.
            return await asyncio.to_thread(self._checked, blob, data)

    def _checked(self, blob: BlobRef, data: memoryview) -> KvTensors | Absent:
        """The tensors, if size, digest, scope and shape are what handle and engine say."""
        if len(data) != blob.num_bytes or hashlib.sha256(data).hexdigest() != blob.sha256:
            return Absent.DAMAGED
        try:
            tensors = decode_kv(self._scope, data)
        except DamagedKv:
            return Absent.DAMAGED
        found = PrefixKv(token_ids=(), keys=tensors.keys, values=tensors.values).layout
        return tensors if found == self._layout else Absent.DAMAGED

    def _block(
        self, block: Block, handle: PrefixKvHandle | None, tensors: Mapping[BlobRef, KvTensors | Absent]
    ) -> BlockKv | Absent:
        if handle is None:
            return Absent.MISSING
        # A block that comes after a missing one is of no use, and was not asked for.
        kv = tensors.get(handle.blob, Absent.MISSING)
        if isinstance(kv, Absent):
            return kv
        end = handle.offset + handle.num_tokens
        if handle.num_tokens != block.num_tokens or end > kv.keys.shape[2] or not _is_at(handle, kv.block_hashes):
            return Absent.DAMAGED
        return BlockKv(kv, handle.offset, end)


def _is_at(handle: PrefixKvHandle, block_hashes: Sequence[str]) -> bool:
    """Whether the handle's block is where it says, in a blob of these: all but the last are whole."""
    at, rest = divmod(handle.offset, BLOCK_TOKENS)
    return rest == 0 and at < len(block_hashes) and block_hashes[at] == handle.block_hash


def _found_first(chain: Sequence[Block], handles: Mapping[str, PrefixKvHandle]) -> list[Block]:
    """The blocks from the chain's beginning to the first that nobody has stored."""
    num_found = next((at for at, block in enumerate(chain) if block.hash not in handles), len(chain))
    return list(chain[:num_found])
