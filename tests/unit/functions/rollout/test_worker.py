"""One worker call after another on a batch: everything is sampled once, whoever comes and goes."""

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from functions.rollout import decoding
from functions.rollout import worker as worker_module
from functions.rollout.worker import worthwhile_room
from shared.contracts.rollout import Sampling
from tests.unit.functions.rollout.batch_world import BATCH, POLICY, BatchWorld, expected_tokens
from tests.unit.functions.rollout.fake_engine import FakeEngine


async def test_a_batch_is_sampled_and_every_completion_says_by_whom(world: BatchWorld) -> None:
    await world.put()
    before = time.time()
    outcome = await world.run(FakeEngine())
    completions = await world.completions()
    assert list(completions) == world.ids
    for id, completion in completions.items():
        assert (completion.id, completion.finish_reason) == (id, "stop")
        np.testing.assert_array_equal(completion.token_ids, expected_tokens(id))
        np.testing.assert_array_equal(completion.rollout_logprobs, np.float32(expected_tokens(id)) / -128)
        np.testing.assert_array_equal(completion.loss_mask, [True] * 4)
        assert (completion.prompt_num_tokens, completion.segments) == (3, (0,))
        assert (completion.policy_version, completion.weights_digest) == (POLICY.version, POLICY.digest)
        assert completion.instance == "rollout-1"
        assert before <= completion.started_at <= completion.ended_at <= time.time()
    assert (outcome.status, outcome.policy_version, outcome.weights_digest) == ("done", 3, POLICY.digest)
    assert outcome.outputs.num_completions == len(world.ids)
    assert outcome.outputs.num_tokens == 4 * len(world.ids)
    assert outcome.outputs.num_resumed == 0
    assert await world.num_left() == 0


async def test_a_batch_without_work_is_done(world: BatchWorld) -> None:
    outcome = await world.run(FakeEngine())
    assert (outcome.status, outcome.outputs.num_completions) == ("done", 0)


async def test_a_second_call_finds_nothing_to_do(world: BatchWorld) -> None:
    await world.put()
    await world.run(FakeEngine())
    engine = FakeEngine()
    assert (await world.run(engine)).outputs.num_completions == 0
    assert engine.num_steps == 0


@pytest.mark.parametrize("max_num_sequences", [1, 2, 3, 4, 7, 12, 100])
async def test_never_more_sequences_at_once_than_allowed(memory_world: BatchWorld, max_num_sequences: int) -> None:
    world, most = memory_world, 0
    engine = FakeEngine(lengths={(row, 0): 9 for row in world.rows}, default_length=3)

    def look() -> None:
        nonlocal most
        most = max(most, engine.num_running)

    engine.on_step = look
    await world.put()
    await world.run(engine, max_num_sequences=max_num_sequences)
    assert most == min(max_num_sequences, len(world.ids))
    assert set(await world.completions()) == set(world.ids)


async def test_a_group_enters_the_engine_together_so_that_its_prompt_is_computed_once(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12 samples of 4 rows, room for 6: one sample of each row ends early, and its place waits for a whole group.
    monkeypatch.setattr(decoding, "BURST_S", 0.0)
    world = memory_world
    engine = FakeEngine(lengths={(row, 0): 2 for row in world.rows}, default_length=6)
    await world.put()
    await world.run(engine, max_num_sequences=6)
    assert engine.added[0] == [f"row-{row}:{sample}" for row in (0, 1) for sample in range(3)]
    assert all(len({name.split(":")[0] for name in added}) * 3 == len(added) for added in engine.added)


@pytest.mark.parametrize(
    ("num_samples", "max_num_sequences", "room"),
    [(8, 64, 8), (8, 16, 8), (8, 12, 6), (16, 8, 4), (8, 1, 1), (1, 64, 1), (64, 65, 32)],
)
def test_room_worth_filling_is_a_group_but_at_most_half(num_samples: int, max_num_sequences: int, room: int) -> None:
    assert worthwhile_room(num_samples, max_num_sequences) == room


async def test_what_reaches_max_tokens_ends_there(memory_world: BatchWorld) -> None:
    await memory_world.put()
    await memory_world.run(
        FakeEngine(default_length=99), sampling=Sampling(temperature=1, max_tokens=5, eos_token_ids=(1,))
    )
    for id, completion in (await memory_world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id, 99)[:5]
        assert completion.finish_reason == "length"


async def test_a_worker_takes_its_own_items_first(world: BatchWorld) -> None:
    own, others = world.items()[2:], world.items()[:2]
    await world.put([others, own])
    engine = FakeEngine()
    await world.run(engine, shard=1, max_num_sequences=6)
    assert engine.added[0] == [f"row-{row}:{sample}" for row in (2, 3) for sample in range(3)]


async def test_workers_share_a_batch_and_its_tokens_do_not_tell_who_did_what(world: BatchWorld) -> None:
    world.num_rows = 8
    await world.put()
    engines = [FakeEngine(step_s=0.001), FakeEngine(step_s=0.001)]
    threads = [world.threads, type(world.threads)(max_workers=1)]
    outcomes = await asyncio.gather(
        *(
            world.run(engine, replace(world.context(), executor=thread), shard=shard, max_num_sequences=3)
            for shard, (engine, thread) in enumerate(zip(engines, threads, strict=True))
        )
    )
    completions = await world.completions()
    assert {id: completion.token_ids.tolist() for id, completion in completions.items()} == {
        id: expected_tokens(id) for id in world.ids
    }
    counts = [outcome.outputs.num_completions for outcome in outcomes]
    assert sum(counts) == len(world.ids)
    assert min(counts) > 0


async def test_items_of_a_dead_worker_are_finished_without_its_samples_again(world: BatchWorld) -> None:
    await world.put()
    committed = [*world.ids[:3], world.ids[4]]
    await world.die_with(2, committed=committed)
    engine = FakeEngine()
    outcome = await world.run(engine)
    sampled = {name for added in engine.added for name in added}
    assert sampled == {str(id) for id in world.ids} - {str(id) for id in committed}
    assert outcome.outputs.num_completions == len(world.ids) - len(committed)
    assert await world.store.work.num_samples(BATCH) == len(world.ids)
    assert await world.num_left() == 0


async def test_items_that_are_all_committed_are_only_given_back(world: BatchWorld) -> None:
    await world.put()
    await world.die_with(4, committed=world.ids)
    engine = FakeEngine()
    assert (await world.run(engine, max_num_sequences=3)).outputs.num_completions == 0
    assert engine.num_steps == 0
    assert await world.num_left() == 0


async def test_work_that_others_give_back_is_taken_by_who_has_room(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_AGAIN_S", 0.0)
    world = memory_world
    own, later = world.items()[:1], world.items()[1:]
    await world.put([own, later])
    held = await world.store.work.lease(
        BATCH, shard=1, owner="other", fence=0, ttl_s=60.0, max_items=3, max_deliveries=3
    )
    loop = asyncio.get_running_loop()
    engine = FakeEngine(default_length=30)

    async def give_back() -> None:
        for leased in held.items:
            await world.store.work.return_item(BATCH, owner="other", item=leased.item)

    def look() -> None:
        if engine.num_steps == 3:
            asyncio.run_coroutine_threadsafe(give_back(), loop).result(10)

    engine.on_step = look
    monkeypatch.setattr(decoding, "BURST_S", 0.0)
    await world.run(engine)
    assert set(await world.completions()) == set(world.ids)


async def test_time_is_counted_by_what_it_was_spent_on(memory_world: BatchWorld) -> None:
    world, context = memory_world, memory_world.context()
    await world.put()
    await world.run(FakeEngine(step_s=0.005), context)
    assert context.watch.compute_s >= 4 * 0.005
    assert context.watch.load_s == 0
