"""What one worker call has leased: its samples in order, its items until the last of them is stored."""

import asyncio
from dataclasses import replace

import pytest

from functions.rollout.engine import GeneratedTokens
from functions.rollout.leased_work import LeasedWork
from shared.contracts.call import BatchKey
from shared.contracts.rollout import WorkItem
from shared.contracts.rollout_mail import Taker
from shared.modeling.randomness import address_seed
from shared.store.base import WorkStore
from shared.store.memory import memory_store
from tests.unit.functions.rollout.batch_world import BATCH, RUN_SEED, BatchWorld, saved_part, stay


async def nothing() -> None:
    """Leases do not expire in these tests."""


@pytest.fixture
def world() -> BatchWorld:
    return BatchWorld(memory_store(lambda: 0.0), nothing)


def leased(world: BatchWorld, work: WorkStore | None = None) -> LeasedWork:
    context = world.context()
    store = replace(world.store, work=work or world.store.work)
    return LeasedWork(world.call(), world.prompts(), replace(context, store=store))


async def test_samples_come_in_order_with_their_prompt_their_seed_and_their_saved_part(world: BatchWorld) -> None:
    await world.put()
    saved = world.ids[1]
    await world.store.work.save_partials(BATCH, fence=0, partials={saved: saved_part((8, 9), (-0.5, -0.25))})
    work = leased(world)
    assert await work.lease(6)
    assert work.num_waiting == 6
    samples = [*work.take(2), *work.take(100)]
    assert [sample.id for sample in samples] == world.ids[:6]
    assert (work.num_waiting, work.num_resumed) == (0, 1)
    for sample in samples:
        request, id = sample.request, sample.id
        assert request.prompt_token_ids == world.prompts()[id.row_uid].token_ids
        assert request.seed == address_seed(RUN_SEED, "train", 3, 0, id.row_uid, id.sample)
        assert request.generated == (
            GeneratedTokens(
                token_ids=(8, 9), logprobs=(-0.5, -0.25), processed_logprobs=(-0.5, -0.25), loss_mask=(True, True)
            )
            if id == saved
            else GeneratedTokens()
        )


async def test_who_comes_from_another_replica_is_told_from_who_was_here_before(world: BatchWorld) -> None:
    await world.put()
    here, there = ("rollout-1", "rollout-9")
    one, two, three = world.ids[:3]
    partials = {
        one: saved_part((8,), (-0.5,), stays=(stay(here), stay(there))),
        two: saved_part((8,), (-0.5,), stays=(stay(there), stay(here))),
        three: saved_part((8,), (-0.5,), stays=(stay(there), stay(here), stay(there))),
    }
    await world.store.work.save_partials(BATCH, fence=0, partials=partials)
    work = leased(world)
    await work.lease(3)
    assert work.most_migrations == 2
    assert [sample.stays[-1].instance for sample in work.take(3)] == [there, here, there]
    assert (work.num_resumed, work.num_migrated_in, work.most_migrations) == (3, 2, 0)


@pytest.mark.parametrize(("num_sequences", "num_items"), [(1, 1), (3, 1), (4, 2), (100, 4)])
async def test_so_many_items_as_bring_the_sequences(world: BatchWorld, num_sequences: int, num_items: int) -> None:
    await world.put()
    work = leased(world)
    assert await work.lease(num_sequences)
    assert work.num_waiting == num_items * world.num_samples
    assert await world.num_left(num_held=num_items) == world.num_rows - num_items


async def test_an_item_is_done_with_its_last_sample(world: BatchWorld) -> None:
    await world.put()
    work = leased(world)
    await work.lease(3)
    await work.note_committed(world.ids[:2])
    assert await world.num_left(num_held=1) == 3
    await work.note_committed(world.ids[2:3])
    assert await world.num_left() == 0


async def test_what_is_not_done_is_offered_again(world: BatchWorld) -> None:
    await world.put()
    work = leased(world)
    await work.lease(6)
    await work.note_committed(world.ids[:3])
    await work.give_back()
    assert work.num_waiting == 0
    assert await world.num_left() == 3


async def test_what_is_not_done_is_handed_on_in_parts(world: BatchWorld) -> None:
    await world.put([[], [], []])
    work = leased(world)
    await work.lease(6)
    await work.note_committed([world.ids[0], world.ids[1], world.ids[3]])
    takers = [Taker(shard=1, free_slots=1), Taker(shard=2, free_slots=1)]
    assert await work.hand_on(takers) == {1, 2, None}
    assert await world.store.work.num_queued(BATCH) == 5
    leases = [
        await world.store.work.lease(
            BATCH, shard=shard, owner=f"taker-{shard}", fence=0, ttl_s=60.0, max_items=1, max_deliveries=3
        )
        for shard in (1, 2)
    ]
    # The larger rest was split over both.
    assert [lease.items[0].item for lease in leases] == [
        WorkItem(row_uid="row-1", samples=(1,)),
        WorkItem(row_uid="row-1", samples=(2,)),
    ]


async def test_how_much_waits_in_the_store_is_known_after_a_look(world: BatchWorld) -> None:
    await world.put()
    work = leased(world)
    assert work.num_queued == 0
    await work.lease(3)
    assert work.num_queued == 3 * world.num_samples


async def test_samples_that_another_took_and_gave_back_in_part_are_in_hand_once(world: BatchWorld) -> None:
    """A worker that the store was lost to for longer than its leases still has their samples in its engine."""
    await world.put()
    work, store = leased(world), world.store.work
    await work.lease(6)
    running = [sample.id for sample in work.take(2)]
    other = LeasedWork(world.call(shard=1), world.prompts(), world.context())
    for item in world.items()[:2]:
        # Its leases have ended, and the other takes them over.
        await store.return_item(BATCH, owner="rollout-1/attempt", item=item)
    await other.lease(100)
    await other.hand_on([Taker(shard=0, free_slots=2)])
    await work.lease(100)
    waiting = [sample.id for sample in work.take(100)]
    assert sorted([*running, *waiting]) == world.ids
    await work.note_committed(world.ids)
    assert await world.num_left() == 0


async def test_two_items_that_end_at_once_end_once(world: BatchWorld) -> None:
    class Slow:
        """A store that takes its time to end a lease."""

        def __init__(self, healthy: WorkStore) -> None:
            self.ended: list[WorkItem] = []
            self._healthy = healthy

        def __getattr__(self, name: str) -> object:
            return getattr(self._healthy, name)

        async def finish_item(self, batch: BatchKey, *, owner: str, item: WorkItem) -> None:
            await asyncio.sleep(0.001)
            self.ended.append(item)

    await world.put()
    store = Slow(world.store.work)
    work = leased(world, store)
    await work.lease(100)
    # The writer of commits and a look for more work both find out what is done.
    await asyncio.gather(*(work.note_committed(world.ids[start:]) for start in (9, 6, 3, 0)))
    assert sorted(item.row_uid for item in store.ended) == world.rows
