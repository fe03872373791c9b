"""Prefix KV by handle: the same tokens as without it, and whatever is wrong with it is counted and computed here."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.prefix_cache import FetchReport, PrefixCacheParams, store_sequences
from functions.rollout.torch_engine.engine import TorchEngine
from shared.codec.prefix_kv import KvTensors, encode_kv
from shared.contracts.errors import StoreUnavailable
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefixKvHandle
from shared.inference.block_hash import BLOCK_TOKENS, blocks_of
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_scope import prefix_scope
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.prefix_kv import KvBlock, KvPiece, NoPrefixKv, PutReport
from tests.unit.functions.prefill.prefill_world import RUN, PrefillWorld, engine_of, prefill_world

SYSTEM = tuple(number % 20 for number in range(2 * BLOCK_TOKENS))
PROMPTS = [(*SYSTEM, number, 3, 4, 5) for number in range(3)]
PARAMS = SamplingParams(temperature=1.0, max_tokens=12, eos_token_ids=())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PrefillWorld]:
    async with prefill_world(tmp_path) as world:
        yield world


async def prefilled(world: PrefillWorld, prompts: Sequence[tuple[int, ...]] = PROMPTS) -> PolicyRef:
    policy = await world.policy()
    await world.call(PrefillInputs(prompts=await world.prompts(prompts), max_num_prefixes=64), policy)
    return policy


def counts(report: FetchReport) -> dict[str, int]:
    names = ("num_hits", "num_misses", "num_late", "num_damaged", "reused_tokens")
    return {name: value for name in names if (value := getattr(report, name))}


def sampled(engine: TorchEngine) -> dict[tuple[str, int], tuple[int, ...]]:
    requests = [
        SequenceRequest(row_uid=f"row-{row}", sample=sample, prompt_token_ids=prompt, seed=10 * row + sample)
        for row, prompt in enumerate(PROMPTS)
        for sample in range(2)
    ]
    engine.add(requests, PARAMS)
    tokens = {}
    while engine.num_running:
        tokens |= {(done.row_uid, done.sample): done.token_ids for done in engine.step()}
    return tokens


class Holding:
    """An engine that only holds prefixes."""

    def __init__(self) -> None:
        self.layout = engine_of().layout
        self.held: dict[tuple[int, ...], PrefixKv] = {}

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        self.held |= {prefix.token_ids: prefix for prefix in prefixes}

    def drop_prefixes(self) -> None:
        self.held = {}


WHOLE = {"num_hits": 3, "reused_tokens": sum(len(prompt) - 1 for prompt in PROMPTS)}


async def test_the_engine_samples_what_it_would_have_and_computes_less(world: PrefillWorld) -> None:
    policy, alone, engine = await prefilled(world), engine_of(), engine_of()
    report = await world.fetch(PROMPTS, policy, engine)
    assert counts(report) == WHOLE
    assert report.fetched_bytes > 0
    assert report.fetch_s > 0
    assert sampled(engine) == sampled(alone)
    assert engine.stats().prefill_tokens == 0 < alone.stats().prefill_tokens


async def test_a_beginning_that_was_stored_is_reused_and_the_rest_computed(world: PrefillWorld) -> None:
    policy = await prefilled(world, [(*SYSTEM, 9, 9)])
    report = await world.fetch(PROMPTS, policy, engine_of())
    assert counts(report) == {"num_misses": 3, "reused_tokens": 3 * len(SYSTEM)}


async def test_nothing_is_found_where_nothing_was_stored(world: PrefillWorld) -> None:
    policy = await world.policy()
    for place in (world, world.on(NoPrefixKv())):
        assert counts(await place.fetch(PROMPTS, policy, engine_of())) == {"num_misses": 3}


async def test_a_prompt_of_one_token_has_no_prefix(world: PrefillWorld) -> None:
    assert counts(await world.fetch([(5,)], await world.policy(), engine_of())) == {}


async def test_kv_of_another_policy_never_hits(world: PrefillWorld) -> None:
    policy = await prefilled(world)
    other = await world.policy(1)
    # The same version number, in the same run.
    assert counts(await world.fetch(PROMPTS, other.model_copy(update={"version": 0}), engine_of(1))) == {
        "num_misses": 3
    }
    adapted = policy.model_copy(update={"adapter": policy.weights})
    assert counts(await world.fetch(PROMPTS, adapted, engine_of())) == {"num_misses": 3}
    again = policy.model_copy(update={"version": 7})
    assert counts(await world.fetch(PROMPTS, again, engine_of())) == WHOLE


async def test_kv_of_another_precision_never_hits(world: PrefillWorld) -> None:
    policy = await prefilled(world)
    assert counts(await world.fetch(PROMPTS, policy, engine_of(dtype=torch.bfloat16))) == {"num_misses": 3}


async def test_kv_of_another_layout_never_hits(world: PrefillWorld) -> None:
    policy, other = await prefilled(world), Holding()
    other.layout = replace(other.layout, num_kv_heads=4)
    report = await world.fetch(PROMPTS, policy, other)  # type: ignore[arg-type]  # the part of one that it uses
    assert counts(report) == {"num_misses": 3}


async def test_the_engine_holds_what_the_last_fetch_gave_it(world: PrefillWorld) -> None:
    policy, engine = await prefilled(world), Holding()
    for prompt in (*PROMPTS, (9, 9, 9)):
        await world.fetch([prompt], policy, engine)  # type: ignore[arg-type]  # the part of one that it uses
        assert set(engine.held) == ({prompt[:-1]} if prompt in PROMPTS else set())


async def test_kv_of_another_tokenizer_never_hits(world: PrefillWorld, tmp_path: Path) -> None:
    policy = await prefilled(world)
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    assert counts(await replace(world, folder=other).fetch(PROMPTS, policy, engine_of())) == {"num_misses": 3}


class Tampered(MemoryPrefixKv):
    """Gives other bytes than it was given, for blobs of some size."""

    def __init__(self, change, *, is_shared: bool) -> None:
        super().__init__()
        self._change = change
        self._is_shared = is_shared

    async def read(self, blob: BlobRef) -> memoryview:
        data = await super().read(blob)
        is_shared = blob.num_bytes > len(SYSTEM) * 64
        return self._change(data) if is_shared == self._is_shared else data


def flipped(data: memoryview) -> memoryview:
    data[-1] ^= 1
    return data


@pytest.mark.parametrize("change", [flipped, lambda data: data[:-1], lambda data: memoryview(bytearray())])
async def test_damaged_bytes_are_computed_here(world: PrefillWorld, change) -> None:
    tampered = world.on(Tampered(change, is_shared=False))
    policy, engine = await prefilled(tampered), engine_of()
    assert counts(await tampered.fetch(PROMPTS, policy, engine)) == {
        "num_damaged": 3,
        "reused_tokens": 3 * len(SYSTEM),
    }
    assert sampled(engine) == sampled(engine_of())


async def test_without_its_beginning_nothing_of_a_prefix_can_be_used(world: PrefillWorld) -> None:
    tampered = world.on(Tampered(flipped, is_shared=True))
    policy, engine = await prefilled(tampered), engine_of()
    assert counts(await tampered.fetch(PROMPTS, policy, engine)) == {"num_damaged": 3}
    assert sampled(engine) == sampled(engine_of())


class Misleading(MemoryPrefixKv):
    """Its handles lead to blobs of the right size and digest that hold something else."""

    def __init__(self, **change: object) -> None:
        super().__init__()
        self._change = change

    async def find(self, run, scope, block_hashes) -> dict[str, PrefixKvHandle]:
        found = await super().find(run, scope, block_hashes)
        return {hash: handle.model_copy(update=self._change) for hash, handle in found.items()}


@pytest.mark.parametrize("change", [{"num_tokens": 7}, {"offset": 100_000}])
async def test_a_handle_that_does_not_fit_its_blob_is_damaged(world: PrefillWorld, change: dict[str, int]) -> None:
    misleading = world.on(Misleading(**change))
    policy, engine = await prefilled(misleading), engine_of()
    assert counts(await misleading.fetch(PROMPTS, policy, engine)) == {"num_damaged": 3}
    assert sampled(engine) == sampled(engine_of())


async def test_a_handle_that_leads_to_another_place_in_its_blob_is_damaged(world: PrefillWorld) -> None:
    misleading = world.on(Misleading(offset=0))
    policy, engine = await prefilled(misleading), engine_of()
    # The first block and the prompts' own rests begin their blobs, the second block does not.
    assert counts(await misleading.fetch(PROMPTS, policy, engine)) == {
        "num_damaged": 3,
        "reused_tokens": 3 * BLOCK_TOKENS,
    }
    assert sampled(engine) == sampled(engine_of())


async def test_a_handle_that_leads_to_another_block_is_damaged(world: PrefillWorld) -> None:
    policy = await prefilled(world)
    store = world.context.store.prefix_kv
    engine = engine_of()

    class Crossed(MemoryPrefixKv):
        async def find(self, run, scope, block_hashes) -> dict[str, PrefixKvHandle]:
            found = await store.find(run, scope, block_hashes)
            rests = [block_hash for block_hash, handle in found.items() if handle.num_tokens == 3]
            blobs = [found[block_hash].blob for block_hash in rests]
            for block_hash, blob in zip(rests, [*blobs[1:], blobs[0]], strict=True):
                found[block_hash] = found[block_hash].model_copy(update={"blob": blob})
            return found

        async def read(self, blob: BlobRef) -> memoryview:
            return await store.read(blob)

    report = await world.on(Crossed()).fetch(PROMPTS, policy, engine)
    assert counts(report) == {"num_damaged": 3, "reused_tokens": 3 * len(SYSTEM)}
    assert sampled(engine) == sampled(engine_of())


@pytest.mark.parametrize("change", [{"num_heads": 4}, {"dtype": torch.bfloat16}])
async def test_kv_that_is_not_what_its_scope_says_is_damaged(world: PrefillWorld, change: dict[str, object]) -> None:
    policy, engine = await world.policy(), engine_of()
    prompt, layout = PROMPTS[0], engine.layout
    scope = prefix_scope(policy, str(world.folder), layout)
    size = (layout.num_layers, change.get("num_heads", layout.num_kv_heads), len(prompt) - 1, layout.head_dim)
    zeros = torch.zeros(size, dtype=change.get("dtype", torch.float32))
    blocks = blocks_of(prompt[:-1])
    data = encode_kv(scope, KvTensors(tuple(block.hash for block in blocks), zeros, zeros))
    piece = KvPiece(tuple(KvBlock(block.hash, block.start, block.num_tokens) for block in blocks), data)
    await world.context.store.prefix_kv.put(RUN, scope, [piece])
    assert counts(await world.fetch([prompt], policy, engine)) == {"num_damaged": 1}


async def test_blocks_of_two_blobs_are_taken_each_from_its_own(world: PrefillWorld) -> None:
    policy, engine = await world.policy(), Holding()
    layout, tokens = engine.layout, SYSTEM
    scope, blocks = prefix_scope(policy, str(world.folder), layout), blocks_of(tokens)
    hashes = tuple(block.hash for block in blocks)
    ones, twos = (
        torch.full((layout.num_layers, layout.num_kv_heads, len(tokens), layout.head_dim), value)
        for value in (1.0, 2.0)
    )
    first = KvTensors(hashes[:1], ones[:, :, :BLOCK_TOKENS], ones[:, :, :BLOCK_TOKENS])
    for kv in (KvTensors(hashes, twos, twos), first):
        parts = tuple(KvBlock(block.hash, block.start, block.num_tokens) for block in blocks[: len(kv.block_hashes)])
        await world.context.store.prefix_kv.put(RUN, scope, [KvPiece(parts, encode_kv(scope, kv))])
    await world.fetch([(*tokens, 1)], policy, engine)  # type: ignore[arg-type]  # the part of one that it uses
    expected = torch.cat([ones[:, :, :BLOCK_TOKENS], twos[:, :, BLOCK_TOKENS:]], dim=2)
    assert torch.equal(engine.held[tokens].keys, expected)
    assert torch.equal(engine.held[tokens].values, expected)


class Evicting(MemoryPrefixKv):
    """Keeps handles and drops some of the bytes."""

    async def read(self, blob: BlobRef) -> memoryview:
        if blob.num_bytes < len(SYSTEM) * 64:
            return await NoPrefixKv().read(blob)
        return await super().read(blob)


async def test_evicted_bytes_are_missed(world: PrefillWorld) -> None:
    evicting = world.on(Evicting())
    policy, engine = await prefilled(evicting), engine_of()
    assert counts(await evicting.fetch(PROMPTS, policy, engine)) == {"num_misses": 3, "reused_tokens": 3 * len(SYSTEM)}
    assert sampled(engine) == sampled(engine_of())


class Slow(MemoryPrefixKv):
    """Never answers one kind of question."""

    def __init__(self, *, finds: bool) -> None:
        super().__init__()
        self._finds = finds
        self.is_slow = False

    async def find(self, run, scope, block_hashes) -> dict[str, PrefixKvHandle]:
        if self.is_slow and not self._finds:
            await asyncio.Event().wait()
        return await super().find(run, scope, block_hashes)

    async def read(self, blob: BlobRef) -> memoryview:
        if blob.num_bytes < len(SYSTEM) * 64:
            await asyncio.Event().wait()
        return await super().read(blob)


@pytest.mark.parametrize("finds", [True, False])
async def test_what_is_late_is_not_waited_for(world: PrefillWorld, finds: bool) -> None:
    slow = Slow(finds=finds)
    place, engine = world.on(slow), engine_of()
    policy = await prefilled(place)
    slow.is_slow = True
    report = await place.fetch(PROMPTS, policy, engine, timeout_s=0.5)
    assert counts(report) == {"num_late": 3, **({"reused_tokens": 3 * len(SYSTEM)} if finds else {})}
    assert sampled(engine) == sampled(engine_of())
    assert len(asyncio.all_tasks()) == 1


class Gone(MemoryPrefixKv):
    """A store that does not answer any more, for one kind of question."""

    def __init__(self, *, finds: bool) -> None:
        super().__init__()
        self._finds = finds
        self.is_gone = False

    async def find(self, run, scope, block_hashes) -> dict[str, PrefixKvHandle]:
        if self.is_gone and not self._finds:
            raise StoreUnavailable("gone")
        return await super().find(run, scope, block_hashes)

    async def read(self, blob: BlobRef) -> memoryview:
        raise StoreUnavailable("gone")


@pytest.mark.parametrize("finds", [True, False])
async def test_a_store_that_is_gone_fails_nobody(world: PrefillWorld, finds: bool) -> None:
    gone = Gone(finds=finds)
    place = world.on(gone)
    policy = await prefilled(place)
    gone.is_gone = True
    assert counts(await place.fetch(PROMPTS, policy, engine_of())) == {"num_late": 3}


async def running(world: PrefillWorld) -> tuple[TorchEngine, PolicyRef]:
    """An engine in the middle of one sequence."""
    engine = engine_of()
    request = SequenceRequest(row_uid="row-0", sample=0, prompt_token_ids=PROMPTS[0], seed=1)
    engine.add([request], PARAMS)
    for _ in range(5):
        engine.step()
    return engine, await world.policy()


async def test_a_sequence_moves_with_its_kv_and_goes_on_with_the_same_tokens(world: PrefillWorld) -> None:
    engine, policy = await running(world)
    params = PrefixCacheParams(run=RUN, model=str(world.folder))
    report = await store_sequences([engine.kv_of("row-0", 0)], policy, world.context, params)
    assert (report.num_handles, report.num_refused) == (3, 0)
    [left] = engine.abort()
    target = engine_of()
    tokens = (*PROMPTS[0], *left.token_ids)
    assert counts(await world.fetch([tokens], policy, target)) == {"num_hits": 1, "reused_tokens": len(tokens) - 1}
    request = SequenceRequest(row_uid="row-0", sample=0, prompt_token_ids=PROMPTS[0], seed=1, generated=left)
    target.add([request], PARAMS)
    stayed, _ = await running(world)
    finished = []
    for each in (target, stayed):
        while each.num_running:
            finished += [done.token_ids for done in each.step()]
    assert finished[0] == finished[1]
    assert target.stats().prefill_tokens == 0


async def test_only_what_is_new_of_a_sequence_is_stored(world: PrefillWorld) -> None:
    policy = await prefilled(world)
    engine, _ = await running(world)
    kv = engine.kv_of("row-0", 0)
    params = PrefixCacheParams(run=RUN, model=str(world.folder))
    report = await store_sequences([kv], policy, world.context, params)
    # Its whole blocks were there; what follows them now is longer than the prompt's own rest.
    assert report.num_handles == 1
    assert await store_sequences([kv], policy, world.context, params) == PutReport()
    assert len(blocks_of(kv.token_ids)) == 3


async def test_a_sequence_that_cannot_be_stored_is_counted(world: PrefillWorld) -> None:
    engine, policy = await running(world)
    kv = engine.kv_of("row-0", 0)
    params = PrefixCacheParams(run=RUN, model=str(world.folder), timeout_s=0.5)
    gone, slow = Gone(finds=False), Slow(finds=False)
    gone.is_gone = slow.is_slow = True
    for store in (NoPrefixKv(), gone, slow):
        report = await store_sequences([kv], policy, world.on(store).context, params)
        assert (report.num_handles, report.num_refused > 0) == (0, True)
    assert await store_sequences([], policy, world.context, params) == PutReport()
