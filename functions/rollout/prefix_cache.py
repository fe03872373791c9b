"""Prefix KV that others computed: fetched by handle into the engine, checked, and never waited for long.

token ids ─▶ block hashes ─▶ handles (one round trip) ─▶ blobs (beside each other) ─▶ checked ─▶ engine

Whatever is missing, late or damaged is computed by the engine itself, so nothing here can fail a call.
"""

import asyncio
import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from functions.rollout.engine import Engine
from shared.codec.prefix_kv import DamagedKv, KvTensors, decode_kv
from shared.contracts.errors import MissingBlob, StoreRefused, StoreUnavailable
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prefill import PrefixKvHandle, PrefixKvScope
from shared.inference.block_hash import Block, blocks_of
from shared.inference.prefix_kv import KvLayout, PrefixKv
from shared.inference.prefix_pieces import pieces_of, shared_by
from shared.inference.prefix_scope import prefix_scope
from shared.service.handler import CallContext
from shared.store.prefix_kv import PrefixKvStore, PutReport

READS_AT_ONCE = 8
"""Blobs that are read beside each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheParams:
    """Whose KV, and how long it may take."""

    run: str
    model: str
    """The policy's folder or hub id, checked."""
    timeout_s: float = 2.0
    """After this long the rest is late and computed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """What came of one fetch. Every distinct prefix counts once: as a hit only if all of its blocks came."""

    num_hits: int = 0
    num_misses: int = 0
    """Prefixes of which a block was never stored, or has been dropped."""
    num_late: int = 0
    """Prefixes of which a blob did not come in time, or the store did not answer."""
    num_damaged: int = 0
    """Prefixes of which a blob is not what its handle promises."""
    fetched_bytes: int = 0
    fetch_s: float = 0.0
    reused_tokens: int = 0
    """Tokens that the engine need not compute, also of prefixes that are no hits: their first blocks may have come."""

    def __add__(self, other: "FetchReport") -> "FetchReport":
        """Both together."""
        return FetchReport(
            num_hits=self.num_hits + other.num_hits,
            num_misses=self.num_misses + other.num_misses,
            num_late=self.num_late + other.num_late,
            num_damaged=self.num_damaged + other.num_damaged,
            fetched_bytes=self.fetched_bytes + other.fetched_bytes,
            fetch_s=self.fetch_s + other.fetch_s,
            reused_tokens=self.reused_tokens + other.reused_tokens,
        )


class _Absent(Enum):
    """Why there is no KV of a block."""

    MISSING = "missing"
    LATE = "late"
    DAMAGED = "damaged"


async def fetch(
    token_ids: Collection[tuple[int, ...]],
    engine: Engine,
    policy: PolicyRef,
    context: CallContext,
    params: PrefixCacheParams,
) -> FetchReport:
    """Give the engine what is stored of the beginnings of these sequences, before they are added.

    A sequence is prompt and generated tokens; its last token is left out, for the first decoding step computes it.
    """
    began = time.perf_counter()
    chains = {prefix: blocks_of(prefix) for tokens in token_ids if (prefix := tokens[:-1])}
    layout = engine.layout
    scope = prefix_scope(policy, params.model, layout)
    reader = _Reader(context.store.prefix_kv, params.run, scope, layout)
    kv = await reader.read(chains.values(), began + params.timeout_s)
    prefixes = await context.compute(_assembled, chains, kv)
    if prefixes:
        await context.compute(engine.hold_prefixes, prefixes)
    worst = [_worst(chain, kv) for chain in chains.values()]
    return FetchReport(
        num_hits=worst.count(None),
        num_misses=worst.count(_Absent.MISSING),
        num_late=worst.count(_Absent.LATE),
        num_damaged=worst.count(_Absent.DAMAGED),
        fetched_bytes=reader.fetched_bytes,
        fetch_s=time.perf_counter() - began,
        reused_tokens=sum(len(prefix.token_ids) for prefix in prefixes),
    )


async def store_sequences(
    sequences: Sequence[PrefixKv], policy: PolicyRef, context: CallContext, params: PrefixCacheParams
) -> PutReport:
    """Keep the KV of unfinished sequences, for whoever goes on with them: it looks for the same blocks.

    What is stored already is not stored again. Never raises for a store that is full or gone.
    """
    sequences = [sequence for sequence in sequences if sequence.token_ids]
    if not sequences:
        return PutReport()
    store, scope = context.store.prefix_kv, prefix_scope(policy, params.model, sequences[0].layout)
    sharers = shared_by(sequence.token_ids for sequence in sequences)
    try:
        async with asyncio.timeout(params.timeout_s):
            stored = await store.find(params.run, scope, list(sharers))
    except (StoreRefused, StoreUnavailable, TimeoutError):
        return PutReport(num_refused=len(sequences))
    pieces = await context.compute(pieces_of, scope, sequences, sharers, stored.keys())
    return await store.put(params.run, scope, pieces)


@dataclass(frozen=True, slots=True)
class _BlockKv:
    """Tokens of a block, or of several that follow each other, within the tensors of their blob."""

    tensors: KvTensors
    start: int
    end: int


class _Reader:
    """Reads the KV of blocks, until a deadline."""

    def __init__(self, store: PrefixKvStore, run: str, scope: PrefixKvScope, layout: KvLayout) -> None:
        self._store = store
        self._run = run
        self._scope = scope
        self._layout = layout
        self._places = asyncio.Semaphore(READS_AT_ONCE)
        self.fetched_bytes = 0

    async def read(self, chains: Collection[Sequence[Block]], until: float) -> dict[str, _BlockKv | _Absent]:
        """The KV of each block by hash, or why it did not come. ``until`` is on the clock of ``time.perf_counter``."""
        blocks = {block.hash: block for chain in chains for block in chain}
        try:
            async with asyncio.timeout(max(0.0, until - time.perf_counter())):
                handles = await self._store.find(self._run, self._scope, list(blocks))
        except (StoreRefused, StoreUnavailable, TimeoutError):
            return dict.fromkeys(blocks, _Absent.LATE)
        wanted = {handles[block.hash].blob for chain in chains for block in _found_first(chain, handles)}
        tensors = await self._read_all(wanted, until)
        return {block.hash: self._block(block, handles.get(block.hash), tensors) for chain in chains for block in chain}

    async def _read_all(self, blobs: Collection[BlobRef], until: float) -> dict[BlobRef, KvTensors | _Absent]:
        reading = {blob: asyncio.create_task(self._read_blob(blob)) for blob in blobs}
        try:
            if reading:
                await asyncio.wait(reading.values(), timeout=max(0.0, until - time.perf_counter()))
            return {blob: task.result() if task.done() else _Absent.LATE for blob, task in reading.items()}
        finally:
            for task in reading.values():
                task.cancel()
            await asyncio.gather(*reading.values(), return_exceptions=True)

    async def _read_blob(self, blob: BlobRef) -> KvTensors | _Absent:
        async with self._places:
            try:
                data = await self._store.read(blob)
            except MissingBlob:
                return _Absent.MISSING
            except (StoreRefused, StoreUnavailable):
                return _Absent.LATE
            self.fetched_bytes += len(data)
            # Off the loop, and not on the compute thread, which may be decoding.
            return await asyncio.to_thread(self._checked, blob, data)

    def _checked(self, blob: BlobRef, data: memoryview) -> KvTensors | _Absent:
        """The tensors, if size, digest, scope and shape are what handle and engine say."""
        if len(data) != blob.num_bytes or hashlib.sha256(data).hexdigest() != blob.sha256:
            return _Absent.DAMAGED
        try:
            tensors = decode_kv(self._scope, data)
        except DamagedKv:
            return _Absent.DAMAGED
        found = PrefixKv(token_ids=(), keys=tensors.keys, values=tensors.values).layout
        return tensors if found == self._layout else _Absent.DAMAGED

    def _block(
        self, block: Block, handle: PrefixKvHandle | None, tensors: Mapping[BlobRef, KvTensors | _Absent]
    ) -> _BlockKv | _Absent:
        kv = _Absent.MISSING if handle is None else tensors.get(handle.blob, _Absent.MISSING)
        if handle is None or isinstance(kv, _Absent):
            return kv if isinstance(kv, _Absent) else _Absent.MISSING
        end = handle.offset + handle.num_tokens
        if handle.num_tokens != block.num_tokens or block.hash not in kv.block_hashes or end > kv.keys.shape[2]:
            return _Absent.DAMAGED
        return _BlockKv(kv, handle.offset, end)


def _found_first(chain: Sequence[Block], handles: Mapping[str, PrefixKvHandle]) -> list[Block]:
    """The blocks from the chain's beginning to the first that nobody has stored."""
    num_found = next((at for at, block in enumerate(chain) if block.hash not in handles), len(chain))
    return list(chain[:num_found])


def _assembled(
    chains: Mapping[tuple[int, ...], Sequence[Block]], kv: Mapping[str, _BlockKv | _Absent]
) -> list[PrefixKv]:
    """For each prefix, as much of its beginning as has come."""
    prefixes = []
    for token_ids, chain in chains.items():
        stretches = _stretches([kv[block.hash] for block in chain])
        if stretches:
            num_tokens = sum(stretch.end - stretch.start for stretch in stretches)
            keys = [stretch.tensors.keys[:, :, stretch.start : stretch.end] for stretch in stretches]
            values = [stretch.tensors.values[:, :, stretch.start : stretch.end] for stretch in stretches]
            prefixes.append(PrefixKv(token_ids=token_ids[:num_tokens], keys=_joined(keys), values=_joined(values)))
    return prefixes


def _stretches(found: Iterable[_BlockKv | _Absent]) -> list[_BlockKv]:
    """The blocks up to the first that is absent, those that follow each other in one blob as one."""
    stretches: list[_BlockKv] = []
    for block in found:
        if isinstance(block, _Absent):
            break
        last = stretches[-1] if stretches else None
        if last is not None and last.tensors is block.tensors and last.end == block.start:
            stretches[-1] = _BlockKv(last.tensors, last.start, block.end)
        else:
            stretches.append(block)
    return stretches


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts `[L, K, T_i, D]` as one `[L, K, P, D]`, without a copy where there is but one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=2)


def _worst(chain: Sequence[Block], kv: Mapping[str, _BlockKv | _Absent]) -> _Absent | None:
    """Why the chain is not whole: what is wrong counts before what is slow, and that before what is not there."""
    absent = {found for block in chain if isinstance(found := kv[block.hash], _Absent)}
    return next((reason for reason in (_Absent.DAMAGED, _Absent.LATE, _Absent.MISSING) if reason in absent), None)
