"""What one worker call has leased: its samples in order, its items until the last of them is stored."""

import asyncio
from dataclasses import replace

import pytest

from functions.rollout.engine import GeneratedTokens
from functions.rollout.leased_work import LeasedWork
from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.modeling.randomness import address_seed
from shared.store.base import WorkStore
from shared.store.memory import memory_store
from tests.unit.functions.rollout.batch_world import BATCH, RUN_SEED, BatchWorld, saved_part


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
    requests = [*work.take(2), *work.take(100)]
    assert [SampleId(request.row_uid, request.sample) for request in requests] == world.ids[:6]
    assert (work.num_waiting, work.num_resumed) == (0, 1)
    for id, request in zip(world.ids, requests, strict=False):
        assert request.prompt_token_ids == world.prompts()[id.row_uid].token_ids
        assert request.seed == address_seed(RUN_SEED, "train", 3, 0, id.row_uid, id.sample)
        assert request.generated == (
            GeneratedTokens(
                token_ids=(8, 9), logprobs=(-0.5, -0.25), processed_logprobs=(-0.5, -0.25), loss_mask=(True, True)
            )
            if id == saved
            else GeneratedTokens()
        )
    assert set(work.started_at) == set(world.ids[:6])


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
