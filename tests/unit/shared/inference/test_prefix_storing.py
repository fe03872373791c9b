"""Prefixes on their way into the store: a bounded part of them at a time, and none after a refusal."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from shared.contracts.prefill import PrefixKvScope
from shared.inference import prefix_storing
from shared.inference.block_hash import BLOCK_TOKENS, blocks_of
from shared.inference.prefix_pieces import pieces_of, shared_by
from shared.inference.prefix_storing import store_prefixes
from shared.service.handler import CallContext
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.prefix_kv import KvPiece, PutReport
from tests.unit.shared.inference.test_prefix_pieces import SCOPE, prefix

RUN = "run-1"
PREFIXES = [prefix(*range(first, first + BLOCK_TOKENS)) for first in range(6)]


class Noting(MemoryPrefixKv):
    """Notes how many pieces come together."""

    def __init__(self, *, budget_bytes: int = 2**30) -> None:
        super().__init__(budget_bytes=budget_bytes)
        self.puts: list[int] = []

    async def put(self, run: str, scope: PrefixKvScope, pieces: Sequence[KvPiece]) -> PutReport:
        self.puts.append(len(pieces))
        return await super().put(run, scope, pieces)


@pytest.fixture
def context() -> Iterator[CallContext]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield CallContext(
            store=memory_store(lambda: 0.0),
            blobs=MemoryBlobs(),
            owner="a",
            instance="prefill-1",
            deadline_at=time.time() + 60,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )


async def stored(context: CallContext, store: Noting) -> PutReport:
    """All but the first, which is there already."""
    context = replace(context, store=replace(context.store, prefix_kv=store))
    there = {block.hash for block in blocks_of(PREFIXES[0].token_ids)}
    return await store_prefixes(context, RUN, SCOPE, PREFIXES, shared_by(each.token_ids for each in PREFIXES), there)


def size_of_a_piece() -> int:
    return len(next(pieces_of(SCOPE, PREFIXES, shared_by([]))).data)


@pytest.mark.parametrize(("num_encoded", "puts"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])])
async def test_a_bounded_part_is_encoded_before_it_is_stored(
    context: CallContext, monkeypatch: pytest.MonkeyPatch, num_encoded: int, puts: list[int]
) -> None:
    monkeypatch.setattr(prefix_storing, "ENCODED_BYTES", num_encoded * size_of_a_piece())
    store = Noting()
    assert await stored(context, store) == PutReport(5, 5 * size_of_a_piece(), 0)
    assert store.puts == puts
    hashes = [block.hash for each in PREFIXES for block in blocks_of(each.token_ids)]
    assert set(await store.find(RUN, SCOPE, hashes)) == set(hashes[1:])


async def test_after_a_refusal_the_rest_is_left_out(context: CallContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_storing, "ENCODED_BYTES", 1)
    store = Noting(budget_bytes=2 * size_of_a_piece())
    assert await stored(context, store) == PutReport(2, 2 * size_of_a_piece(), 1)
    assert store.puts == [1, 1, 1]


async def test_nothing_is_stored_of_nothing(context: CallContext) -> None:
    store = Noting()
    context = replace(context, store=replace(context.store, prefix_kv=store))
    assert await store_prefixes(context, RUN, SCOPE, [], shared_by([]), ()) == PutReport()
    assert store.puts == []
