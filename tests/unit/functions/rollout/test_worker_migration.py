"""Sequences that move from one actor to another: the same tokens as if they had stayed, and nothing lost on the way."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from functions.rollout import mailbox as mailbox_module
from functions.rollout import prefix_cache
from functions.rollout import worker as worker_module
from functions.rollout.prefix_cache import FetchReport
from shared.codec.completions import decode_partial
from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId, num_migrations
from shared.contracts.errors import StoreUnavailable
from shared.contracts.rollout import WorkItem
from shared.contracts.rollout_mail import MailKind, Taker
from shared.store.base import WorkStore
from tests.fakes.gates import gated_store
from tests.unit.functions.rollout.batch_world import BATCH, BatchWorld, expected_tokens, until
from tests.unit.functions.rollout.fake_engine import FakeEngine
from tests.unit.functions.rollout.long_rollouts import LONG, SHORT, after_steps, long_engine

LENGTH = 300


def takers(**free_slots: int) -> tuple[Taker, ...]:
    return tuple(Taker(shard=int(name[1:]), free_slots=free) for name, free in free_slots.items())


async def queued(world: BatchWorld, shard: int) -> list[WorkItem]:
    """What waits for an actor and for all; it is taken."""
    lease = await world.store.work.lease(
        BATCH, shard=shard, owner=f"look-{shard}", fence=0, ttl_s=60.0, max_items=100, max_deliveries=9
    )
    return [leased.item for leased in lease.items]


async def check_that_all_is_as_if_nobody_had_moved(world: BatchWorld, *, length: int) -> None:
    completions = await world.completions()
    assert sorted(completions) == world.ids
    for id, completion in completions.items():
        tokens = expected_tokens(id, SHORT if id.sample == 0 else length)
        assert completion.token_ids.tolist() == tokens
        np.testing.assert_array_equal(completion.rollout_logprobs, np.float32(tokens) / -128)
        assert completion.stays[-1].instance == completion.instance
        assert completion.stays[-1].num_tokens == len(tokens)
        assert completion.started_at == completion.stays[0].started_at


async def cut_after(world: BatchWorld, num_steps: int, engine: FakeEngine | None = None, **mail: Any) -> Any:
    """Run shard 0 until a cut comes."""
    engine = engine or FakeEngine(lengths={(row, 0): SHORT for row in world.rows}, default_length=LENGTH)
    after_steps(engine, num_steps, lambda: world.tell(MailKind.CUT, shard=0, segment=0, **mail))
    return await world.run(engine, sampling=LONG)


async def test_a_cut_actor_leaves_its_unfinished_samples_to_those_with_free_places(world: BatchWorld) -> None:
    world.num_rows = 2
    await world.put([world.items(), [], [], []])
    outcome = await cut_after(world, 5, takers=takers(s1=2, s3=1))
    assert outcome.status == "done"
    assert (outcome.outputs.num_completions, outcome.outputs.num_migrated_out) == (2, 4)
    told = [(await world.store.work.mail(BATCH, shard=shard)).messages for shard in (1, 2, 3)]
    # The sample without a place is offered to all, who are all told.
    assert [sum("work" in message for message in messages) for messages in told] == [2, 1, 2]
    left = [WorkItem(row_uid="row-0", samples=(1, 2)), WorkItem(row_uid="row-1", samples=(1,))]
    left.append(WorkItem(row_uid="row-1", samples=(2,)))
    # Nobody is idle here, so that nobody takes from another's queue.
    assert sorted(await queued(world, 1), key=str) == sorted([left[0], left[2]], key=str)
    assert await queued(world, 3) == [left[1]]
    partials = await world.store.work.partials(BATCH, world.ids)
    assert {id.sample for id in partials} == {1, 2}
    for id, data in partials.items():
        tokens = decode_partial(data).token_ids.tolist()
        assert tokens == expected_tokens(id, LENGTH)[: len(tokens)]
        assert len(tokens) >= 5


async def test_what_moved_ends_with_the_same_tokens_and_says_where_it_was(world: BatchWorld) -> None:
    await world.put([world.items(), []])
    before = time.time()
    await cut_after(world, 5, takers=takers(s1=100))
    outcome = await world.run(FakeEngine(default_length=LENGTH), shard=1, sampling=LONG)
    num_moved = 2 * world.num_rows
    outputs = outcome.outputs
    assert (outputs.num_completions, outputs.num_resumed, outputs.num_migrated_in) == (num_moved, num_moved, num_moved)
    await check_that_all_is_as_if_nobody_had_moved(world, length=LENGTH)
    for id, completion in (await world.completions()).items():
        if id.sample == 0:
            assert [stay.instance for stay in completion.stays] == ["rollout-1"]
            continue
        first, second = completion.stays
        assert (first.instance, first.shard, second.instance, second.shard) == ("rollout-1", 0, "rollout-2", 1)
        assert 5 <= first.num_tokens < second.num_tokens == LENGTH
        times = [first.started_at, first.first_token_at, first.ended_at]
        times += [second.started_at, second.first_token_at, second.ended_at]
        assert times == sorted(times)
        assert before <= times[0]
        assert num_migrations(completion.stays) == 1


async def test_a_busy_taker_notices_at_once_and_fills_single_places(
    world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would never look by itself: too little room for a group, and it has looked already.
    monkeypatch.setattr(worker_module, "LOOK_AGAIN_S", 3600.0)
    monkeypatch.setattr(mailbox_module, "LOOK_EVERY_S", 0.002)
    world.num_rows, world.num_samples = 2, 4
    await world.put([world.items()[:1], world.items()[1:]])
    taker = FakeEngine(default_length=LENGTH, step_s=0.002)
    cut = FakeEngine(default_length=LENGTH, step_s=0.001)
    after_steps(cut, 20, lambda: world.tell(MailKind.CUT, shard=0, segment=0, takers=takers(s1=2)))
    threads = [world.threads, type(world.threads)(max_workers=1)]
    contexts = [replace(world.context(), executor=executor) for executor in threads]
    left, taken = await asyncio.gather(
        world.run(cut, contexts[0], shard=0, sampling=LONG, max_num_sequences=6),
        world.run(taker, contexts[1], shard=1, sampling=LONG, max_num_sequences=6),
    )
    threads[1].shutdown()
    assert (left.outputs.num_migrated_out, taken.outputs.num_migrated_in) == (4, 4)
    # Two at once, beside its own four; the others, offered to all, when places came.
    assert len(taker.added[1]) == 2
    for id, completion in (await world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id, LENGTH)


async def test_two_cuts_move_a_sequence_twice(world: BatchWorld) -> None:
    await world.put([world.items(), [], []])
    await cut_after(world, 5, takers=takers(s1=100))
    second = FakeEngine(default_length=LENGTH)
    after_steps(second, 7, lambda: world.tell(MailKind.CUT, shard=1, takers=takers(s2=100)))
    await world.run(second, shard=1, sampling=LONG)
    await world.run(FakeEngine(default_length=LENGTH), shard=2, sampling=LONG)
    await check_that_all_is_as_if_nobody_had_moved(world, length=LENGTH)
    moved = [completion.stays for id, completion in (await world.completions()).items() if id.sample]
    assert {tuple(stay.shard for stay in stays) for stays in moved} == {(0, 1, 2)}
    assert all(stays[0].num_tokens < stays[1].num_tokens < stays[2].num_tokens for stays in moved)


async def test_a_sequence_keeps_its_budget_of_tokens(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put([world.items(), []])
    await cut_after(world, 100, FakeEngine(default_length=4000), takers=takers(s1=100))
    engine = FakeEngine(default_length=4000)
    await world.run(engine, shard=1, sampling=LONG)
    completions = (await world.completions()).values()
    assert {(len(completion.token_ids), completion.finish_reason) for completion in completions} == {
        (LONG.max_tokens, "length")
    }
    assert engine.num_steps < LONG.max_tokens


async def test_samples_that_had_not_begun_go_on_too_and_are_no_migration(world: BatchWorld) -> None:
    await world.put([world.items(), []])
    engine = FakeEngine(default_length=LENGTH)
    after_steps(engine, 3, lambda: world.tell(MailKind.CUT, shard=0, takers=takers(s1=100)))
    # The two waiting items are still in its queue, where the next worker finds them.
    outcome = await world.run(engine, sampling=LONG, max_num_sequences=4)
    assert outcome.outputs.num_migrated_out == 4
    second = await world.run(FakeEngine(default_length=LENGTH), shard=1, sampling=LONG)
    assert (second.outputs.num_completions, second.outputs.num_migrated_in) == (12, 4)
    assert {len(completion.stays) for completion in (await world.completions()).values()} == {1, 2}


async def test_a_cut_in_the_middle_of_a_commit_loses_and_repeats_nothing(memory_world: BatchWorld) -> None:
    world, commits = memory_world, list[Sequence[SampleId]]()

    class Slow:
        """A store that takes its time to commit, and is told to cut meanwhile."""

        def __init__(self, healthy: WorkStore) -> None:
            self._healthy = healthy

        def __getattr__(self, name: str) -> Any:
            return getattr(self._healthy, name)

        async def commit_samples(self, batch: BatchKey, **arguments: Any) -> int:
            if not commits:
                await world.tell(MailKind.CUT, shard=0, takers=takers(s1=100))
            await asyncio.sleep(0.1)
            commits.append(sorted(arguments["samples"]))
            return await self._healthy.commit_samples(batch, **arguments)

    await world.put([world.items(), []])
    engine = long_engine(world)
    engine.step_s = 0.002
    context = world.context()
    slow = replace(context, store=replace(world.store, work=Slow(world.store.work)))
    outcome = await world.run(engine, slow, sampling=LONG)
    assert outcome.outputs.num_completions == world.num_rows
    assert commits == [[SampleId(row, 0) for row in world.rows]]
    second = await world.run(FakeEngine(default_length=4000), shard=1, sampling=LONG)
    assert second.outputs.num_completions == 2 * world.num_rows
    assert sorted(await world.completions()) == world.ids


@pytest.mark.parametrize("dies_at", ["save_partials", "return_item", "post"])
@pytest.mark.parametrize("is_answer_lost", [False, True])
async def test_an_actor_that_dies_after_the_cut_loses_nothing(
    memory_world: BatchWorld, dies_at: str, is_answer_lost: bool
) -> None:
    """Whatever it had saved and handed on by then; the rest is found when its leases have ended."""
    world, is_dead = memory_world, False

    def gate(operation: str, is_done: bool) -> None:
        nonlocal is_dead
        is_dead = is_dead or (operation == dies_at and is_done == is_answer_lost)
        if is_dead:
            raise StoreUnavailable("this process is dead")

    await world.put([world.items(), []])
    engine = FakeEngine(lengths={(row, 0): SHORT for row in world.rows}, default_length=LENGTH)
    after_steps(engine, 5, lambda: world.tell(MailKind.CUT, shard=0, takers=takers(s1=100)))
    context = world.context()
    with pytest.raises(StoreUnavailable):
        await world.run(engine, replace(context, store=gated_store(world.store, gate)), sampling=LONG)
    for _ in range(10):
        await world.let_leases_expire()
    await world.run(FakeEngine(default_length=LENGTH), shard=1, sampling=LONG)
    completions = await world.completions()
    assert sorted(completions) == world.ids
    for id, completion in completions.items():
        assert completion.token_ids.tolist() == expected_tokens(id, SHORT if id.sample == 0 else LENGTH)
    assert await world.num_left() == 0


async def test_the_next_call_of_a_cut_shard_is_not_cut_again(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put([world.items()])
    await cut_after(world, 5)
    outcome = await world.run(FakeEngine(default_length=LENGTH), segment=1, sampling=LONG)
    assert outcome.outputs.num_completions == 2 * world.num_rows
    await check_that_all_is_as_if_nobody_had_moved(world, length=LENGTH)


@pytest.mark.parametrize("with_kv", [True, False])
async def test_keys_and_values_move_when_the_cut_says_so(memory_world: BatchWorld, with_kv: bool) -> None:
    world = memory_world
    await world.put([world.items(), []])
    await cut_after(world, 70, takers=takers(s1=100), with_kv=with_kv)
    partials = (await world.store.work.partials(BATCH, world.ids)).values()
    assert {decode_partial(data).has_kv for data in partials} == {with_kv}
    engine = FakeEngine(default_length=LENGTH)
    outputs = (await world.run(engine, shard=1, sampling=LONG)).outputs
    assert outputs.num_migrated_in == 8
    assert outputs.num_prefix_hits == (8 if with_kv else 0)
    assert (outputs.prefix_bytes > 0) == with_kv
    assert (outputs.reused_tokens > 8 * 64) == with_kv
    assert engine.held == []
    await check_that_all_is_as_if_nobody_had_moved(world, length=LENGTH)


async def test_what_runs_goes_on_while_keys_and_values_are_fetched(
    memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = memory_world
    world.num_rows, world.num_samples = 4, 1
    await world.put()
    engine = FakeEngine(lengths={(row, 0): 40 for row in world.rows[:2]}, default_length=4, step_s=0.002)
    steps: list[int] = []

    async def fetch(*arguments: Any) -> FetchReport:
        steps.append(engine.num_steps)
        await asyncio.sleep(0.03)
        for _ in range(5000):
            if engine.num_running == 0 or engine.num_steps > steps[-1]:
                break
            await asyncio.sleep(0.002)
        steps.append(engine.num_steps)
        return FetchReport(num_misses=1)

    monkeypatch.setattr(prefix_cache, "fetch", fetch)
    outcome = await world.run(engine, prefix_kv=True, max_num_sequences=3)
    assert outcome.outputs.num_prefix_misses == 2
    assert steps[0] == steps[1] == 0, "nothing ran yet"
    assert steps[3] > steps[2] > 0
    assert sorted(await world.completions()) == world.ids


async def test_the_prompts_prefix_kv_is_looked_for_where_the_call_says_that_there_is_some(
    memory_world: BatchWorld,
) -> None:
    await memory_world.put()
    outputs = (await memory_world.run(FakeEngine(), prefix_kv=True)).outputs
    # All prompts are alike but for their last token, which is decoded.
    assert (outputs.num_prefix_hits, outputs.num_prefix_misses) == (0, 1)
    assert outputs.prefill_tokens > 0


async def test_a_taker_that_is_gone_leaves_its_queue_to_whoever_is_idle(world: BatchWorld) -> None:
    await world.put([world.items(), [], []])
    await cut_after(world, 5, takers=takers(s1=100))

    async def run() -> bool:
        await world.run(FakeEngine(default_length=LENGTH), shard=2, sampling=LONG)
        return len(await world.completions()) == len(world.ids)

    await until(run)
    await check_that_all_is_as_if_nobody_had_moved(world, length=LENGTH)
