"""Prefix KV that others computed: fetched by handle into the engine, checked, and never waited for long.

token ids ─▶ block hashes ─▶ blocks, as far as they come ─▶ beginnings ─▶ engine

Whatever is missing, late or damaged is computed by the engine itself, so nothing here can fail a call.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.rollout.engine import Engine
from functions.rollout.prefix_reading import Absent, BlockKv, BlockReader
from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.policy import PolicyRef
from shared.inference.block_hash import Block, blocks_of
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_pieces import shared_by
from shared.inference.prefix_scope import prefix_scope
from shared.inference.prefix_storing import store_prefixes
from shared.service.handler import CallContext
from shared.store.prefix_kv import PutReport


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


async def fetch(
    token_ids: Collection[tuple[int, ...]],
    engine: Engine,
    policy: PolicyRef,
    context: CallContext,
    params: PrefixCacheParams,
) -> FetchReport:
    """Give the engine what is stored of the beginnings of these sequences, before they are added, in place of what the
    fetch before gave it: it holds no more than the sequences need that begin together.

    A sequence is prompt and generated tokens; its last token is left out, for the first decoding step computes it.
    """
    began = time.perf_counter()
    chains = {prefix: blocks_of(prefix) for tokens in token_ids if (prefix := tokens[:-1])}
    layout = engine.layout
    # A tokenizer's digest is read off the loop, once; the compute thread may be decoding.
    scope = await asyncio.to_thread(prefix_scope, policy, params.model, layout)
    reader = BlockReader(context.store.prefix_kv, params.run, scope, layout)
    kv = await reader.read(chains.values(), began + params.timeout_s)
    prefixes = await context.compute(_assembled, chains, kv)
    await context.compute(_hand_over, prefixes, engine)
    worst = [_worst(chain, kv) for chain in chains.values()]
    return FetchReport(
        num_hits=worst.count(None),
        num_misses=worst.count(Absent.MISSING),
        num_late=worst.count(Absent.LATE),
        num_damaged=worst.count(Absent.DAMAGED),
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
    scope = await asyncio.to_thread(prefix_scope, policy, params.model, sequences[0].layout)
    sharers = shared_by(sequence.token_ids for sequence in sequences)
    try:
        async with asyncio.timeout(params.timeout_s):
            stored = await context.store.prefix_kv.find(params.run, scope, list(sharers))
    except (StoreRefused, StoreUnavailable, TimeoutError):
        return PutReport(num_refused=len(sequences))
    return await store_prefixes(context, params.run, scope, sequences, sharers, stored.keys())


def _hand_over(prefixes: Sequence[PrefixKv], engine: Engine) -> None:
    engine.drop_prefixes()
    engine.hold_prefixes(prefixes)


def _assembled(chains: Mapping[tuple[int, ...], Sequence[Block]], kv: Mapping[str, BlockKv | Absent]) -> list[PrefixKv]:
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


def _stretches(found: Iterable[BlockKv | Absent]) -> list[BlockKv]:
    """The blocks up to the first that is absent, those that follow each other in one blob as one."""
    stretches: list[BlockKv] = []
    for block in found:
        if isinstance(block, Absent):
            break
        last = stretches[-1] if stretches else None
        if last is not None and last.tensors is block.tensors and last.end == block.start:
            stretches[-1] = BlockKv(last.tensors, last.start, block.end)
        else:
            stretches.append(block)
    return stretches


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts `[L, K, T_i, D]` as one `[L, K, P, D]`, without a copy where there is but one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=2)


def _worst(chain: Sequence[Block], kv: Mapping[str, BlockKv | Absent]) -> Absent | None:
    """Why the chain is not whole: what is wrong counts before what is slow, and that before what is not there."""
    absent = {found for block in chain if isinstance(found := kv[block.hash], Absent)}
    return next((reason for reason in (Absent.DAMAGED, Absent.LATE, Absent.MISSING) if reason in absent), None)
