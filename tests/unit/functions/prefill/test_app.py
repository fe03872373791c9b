"""The prefill stage: what actors find is what they would compute, once, whatever cuts the call."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from functions.prefill.app import PrefillHandler
from shared.contracts.errors import Cancelled, InvalidInput, MissingBlob
from shared.contracts.policy import PolicyRef
from shared.contracts.prefill import PrefillInputs
from shared.inference.block_hash import BLOCK_TOKENS
from shared.inference.decoder import decoder_for
from shared.inference.llama import LlamaDecoder
from shared.inference.prefix_computing import compute_prefixes
from shared.inference.prefix_kv import PrefixKv
from shared.service.stop_flag import StopFlag
from shared.store.memory_prefix_kv import MemoryPrefixKv
from shared.store.prefix_kv import KvPiece, NoPrefixKv, PutReport
from tests.unit.functions.prefill.prefill_world import PrefillWorld, engine_of, model_of, prefill_world

SYSTEM = tuple(number % 20 for number in range(2 * BLOCK_TOKENS))
PROMPTS = [(*SYSTEM, number, 3, 4, 5) for number in range(6)]
ALL_TOKENS = sum(len(prompt) - 1 for prompt in PROMPTS)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[PrefillWorld]:
    async with prefill_world(tmp_path) as world:
        yield world


class Held:
    """An engine that only remembers what it is given."""

    def __init__(self) -> None:
        self.layout = engine_of().layout
        self.prefixes: list[PrefixKv] = []

    def drop_prefixes(self) -> None:
        self.prefixes.clear()

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        self.prefixes += prefixes


async def found(world: PrefillWorld, policy: PolicyRef) -> dict[tuple[int, ...], PrefixKv]:
    held = Held()
    await world.fetch(PROMPTS, policy, held)  # type: ignore[arg-type]  # the part of an engine that it uses
    return {prefix.token_ids: prefix for prefix in held.prefixes}


async def test_actors_find_the_kv_that_they_would_compute(world: PrefillWorld) -> None:
    policy = await world.policy()
    inputs = PrefillInputs(prompts=await world.prompts([*PROMPTS, PROMPTS[0]]), max_num_prefixes=64)
    outcome = await world.call(inputs, policy)
    kv = await found(world, policy)
    assert kv.keys() == {prompt[:-1] for prompt in PROMPTS}
    for own in compute_prefixes(decoder_for(model_of()), list(kv)):
        torch.testing.assert_close(kv[own.token_ids].keys, own.keys, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(kv[own.token_ids].values, own.values, rtol=1e-5, atol=1e-5)
    outputs = outcome.outputs
    assert (outcome.status, outcome.policy_version, outcome.weights_digest) == ("done", 0, policy.digest)
    assert (outputs.num_prefixes, outputs.num_prefix_tokens) == (6, ALL_TOKENS)
    # The two whole blocks that all share, and a rest each.
    assert (outputs.num_handles, outputs.num_refused) == (2 + 6, 0)
    layout = engine_of().layout
    assert outputs.stored_bytes > (len(SYSTEM) + 6 * 3) * layout.bytes_per_token
    assert outputs.computed_tokens < ALL_TOKENS / 4
    assert outputs.compute_s > 0
    assert outputs.store_s > 0


@pytest.mark.parametrize("max_num_prefixes", [1, 2, 4])
async def test_rounds_change_nothing_that_is_found(world: PrefillWorld, max_num_prefixes: int) -> None:
    policy = await world.policy()
    prompts = await world.prompts(PROMPTS)
    outcome = await world.call(PrefillInputs(prompts=prompts, max_num_prefixes=max_num_prefixes), policy)
    assert (outcome.outputs.num_prefixes, outcome.outputs.num_handles) == (6, 8)
    assert (await found(world, policy)).keys() == {prompt[:-1] for prompt in PROMPTS}


async def test_a_beginning_that_rounds_share_is_computed_once(
    world: PrefillWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[tuple[int, ...]] = []
    prefill = LlamaDecoder.prefill

    def noted(self, token_ids, positions, attention) -> None:
        passed.append(tuple(token_ids.shape))
        prefill(self, token_ids, positions, attention)

    monkeypatch.setattr(LlamaDecoder, "prefill", noted)
    inputs = PrefillInputs(prompts=await world.prompts(PROMPTS), max_num_prefixes=2)
    outcome = await world.call(inputs, await world.policy())
    assert outcome.outputs.computed_tokens == len(SYSTEM) + 6 * 3
    # The beginning alone, then what follows it of two prompts at a time.
    assert passed == [(1, len(SYSTEM)), (2, 3), (2, 3), (2, 3)]


@pytest.mark.parametrize("max_num_prefixes", [2, 64])
async def test_the_same_call_again_computes_nothing(world: PrefillWorld, max_num_prefixes: int) -> None:
    prompts, policy = await world.prompts(PROMPTS), await world.policy()
    inputs = PrefillInputs(prompts=prompts, max_num_prefixes=max_num_prefixes)
    await world.call(inputs, policy)
    again = (await world.call(inputs, policy)).outputs
    assert (again.num_prefixes, again.computed_tokens, again.num_handles, again.stored_bytes) == (6, 0, 0, 0)


async def test_a_subset_of_rows_can_be_asked_for(world: PrefillWorld) -> None:
    prompts, policy = await world.prompts(PROMPTS), await world.policy()
    inputs = PrefillInputs(prompts=prompts, row_uids=("row-1", "row-4"), max_num_prefixes=64)
    assert (await world.call(inputs, policy)).outputs.num_prefixes == 2
    whole = {prefix for prefix in await found(world, policy) if len(prefix) > len(SYSTEM)}
    assert whole == {PROMPTS[1][:-1], PROMPTS[4][:-1]}
    with pytest.raises(InvalidInput, match="row-9"):
        await world.call(PrefillInputs(prompts=prompts, row_uids=("row-9",), max_num_prefixes=1), policy)


async def test_a_deadline_cuts_between_rounds_and_the_next_call_goes_on(world: PrefillWorld) -> None:
    prompts, policy, handler = await world.prompts(PROMPTS), await world.policy(), PrefillHandler(world.settings)
    late = replace(world, context=replace(world.context, deadline_at=time.time() - 1))
    next_round, num_calls, num_prefixes = 0, 0, 0
    while next_round is not None:
        inputs = PrefillInputs(prompts=prompts, max_num_prefixes=2, first_round=next_round)
        outcome = await late.call(inputs, policy, handler)
        assert outcome.status == ("continue" if outcome.outputs.next_round is not None else "done")
        next_round = outcome.outputs.next_round
        num_calls, num_prefixes = num_calls + 1, num_prefixes + outcome.outputs.num_prefixes
    # Every call makes progress, even one that comes late.
    assert (num_calls, num_prefixes) == (3, 6)
    assert (await found(world, policy)).keys() == {prompt[:-1] for prompt in PROMPTS}


async def test_over_the_budget_the_rest_is_left_out_and_counted(world: PrefillWorld) -> None:
    small = world.on(MemoryPrefixKv(budget_bytes=(len(SYSTEM) + 12) * engine_of().layout.bytes_per_token))
    inputs = PrefillInputs(prompts=await small.prompts(PROMPTS), max_num_prefixes=2)
    outcome = await small.call(inputs, await small.policy())
    assert outcome.status == "done"
    assert outcome.outputs.num_refused > 0
    assert 0 < outcome.outputs.num_prefixes < 6
    assert outcome.outputs.num_handles > 0


async def test_without_a_place_for_it_a_call_ends_after_its_first_round(world: PrefillWorld) -> None:
    nowhere = world.on(NoPrefixKv())
    inputs = PrefillInputs(prompts=await nowhere.prompts(PROMPTS), max_num_prefixes=2)
    outputs = (await nowhere.call(inputs, await nowhere.policy())).outputs
    assert (outputs.num_prefixes, outputs.num_handles, outputs.stored_bytes) == (2, 0, 0)
    assert outputs.num_refused > 0


async def test_a_call_without_a_policy_or_prompts_is_refused(world: PrefillWorld) -> None:
    prompts = await world.prompts(PROMPTS)
    with pytest.raises(InvalidInput, match="policy"):
        await world.call(PrefillInputs(prompts=prompts, max_num_prefixes=1), None)
    gone = prompts.model_copy(update={"id": "run-1/000000/prompts-gone"})
    with pytest.raises(MissingBlob):
        await world.call(PrefillInputs(prompts=gone, max_num_prefixes=1), await world.policy())


class StopsAtPut(MemoryPrefixKv):
    """Whoever waits for the call is gone when its first round is stored."""

    def __init__(self, stop: StopFlag) -> None:
        super().__init__()
        self._stop = stop

    async def put(self, run: str, scope: object, pieces: Sequence[KvPiece]) -> PutReport:
        self._stop.set("the caller is gone")
        return await super().put(run, scope, pieces)  # type: ignore[arg-type]  # passed on


async def test_when_nobody_waits_any_more_it_stops_and_keeps_what_it_has(world: PrefillWorld) -> None:
    stopped, policy = world.on(StopsAtPut(world.context.stop)), await world.policy()
    inputs = PrefillInputs(prompts=await world.prompts(PROMPTS), max_num_prefixes=2)
    with pytest.raises(Cancelled, match="the caller is gone"):
        await stopped.call(inputs, policy)
    whole = {prefix for prefix in await found(stopped, policy) if len(prefix) > len(SYSTEM)}
    assert len(whole) == 2
