"""Work items and their leases, on every adapter."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from shared.contracts.call import BatchKey
from shared.contracts.errors import StaleFence
from shared.contracts.rollout import WorkItem
from shared.contracts.stage import Purpose
from shared.store.base import Lease, LeasedItem, Part
from tests.unit.shared.store.conftest import LONG_S, SHORT_S, World

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)


def item(name: str) -> WorkItem:
    return WorkItem(row_uid=name, samples=(0, 1))


async def put(world: World, *assigned: str, offered: str = "", fence: int = 0) -> None:
    """Queue one item per letter: each string is one actor's queue."""
    await world.store.work.put_items(
        BATCH,
        fence=fence,
        assigned=[[item(name) for name in names] for names in assigned],
        offered=[item(name) for name in offered],
    )


async def lease(
    world: World,
    owner: str,
    *,
    shard: int = 0,
    fence: int = 0,
    ttl_s: float = LONG_S,
    max_items: int = 1,
    max_deliveries: int = 3,
) -> Lease:
    return await world.store.work.lease(
        BATCH,
        shard=shard,
        owner=owner,
        fence=fence,
        ttl_s=ttl_s,
        max_items=max_items,
        max_deliveries=max_deliveries,
    )


async def names(world: World, owner: str, **options: int | float) -> str:
    """Letters of the items that the worker is given."""
    return letters((await lease(world, owner, **options)).items)


def letters(items: Sequence[LeasedItem]) -> str:
    return "".join(leased.item.row_uid for leased in items)


async def finish(world: World, owner: str, rows: str) -> None:
    """The worker is done with its items of these rows."""
    for row in rows:
        await world.store.work.finish_item(BATCH, owner=owner, item=item(row))


async def lose(world: World, owner: str, num_times: int, *, max_items: int = 1) -> None:
    """A worker that takes items and dies with them, so many times."""
    for attempt in range(num_times):
        assert (await lease(world, f"{owner}-{attempt}", ttl_s=SHORT_S, max_items=max_items)).items
        await world.let_expire()


async def test_own_items_come_first_then_offered_then_expired_ones(world: World) -> None:
    await put(world, "ab", "c", offered="d")
    assert await names(world, "dying", ttl_s=SHORT_S) == "a"
    await world.let_expire()
    assert [await names(world, "w") for _ in range(4)] == ["b", "d", "a", ""]


async def test_only_an_idle_actor_takes_what_waits_for_another(world: World) -> None:
    await put(world, "a", "bcdef")
    assert await names(world, "w", max_items=9) == "a"
    assert await names(world, "w", max_items=9) == ""
    await finish(world, "w", "a")
    assert await names(world, "w", max_items=9) == "bcd"


async def test_an_idle_actor_leaves_half_for_the_one_it_waits_for(world: World) -> None:
    await put(world, "", "abc")
    assert await names(world, "w", max_items=9) == "ab"
    await finish(world, "w", "ab")
    assert await names(world, "w", max_items=9) == "c"


async def test_each_actor_starts_with_its_own_queue(world: World) -> None:
    await put(world, "ab", "cd", offered="e")
    assert await names(world, "one", shard=1, max_items=2) == "cd"
    assert await names(world, "zero", shard=0, max_items=9) == "abe"


async def test_an_actor_without_a_queue_takes_what_others_have(world: World) -> None:
    await put(world, "a", "b")
    assert await names(world, "w", shard=7, max_items=9) == "ab"


async def test_a_batch_without_items_has_none_to_give(world: World) -> None:
    assert await lease(world, "w") == Lease((), 0)


async def test_items_are_put_once(world: World) -> None:
    await put(world, "a")
    await put(world, "xyz", offered="v")
    assert await names(world, "w", max_items=9) == "a"


async def test_items_of_others_are_counted_as_elsewhere_until_they_are_finished(world: World) -> None:
    await put(world, "abc")
    assert (await lease(world, "a", max_items=2)).num_elsewhere == 0
    assert await lease(world, "b") == Lease((LeasedItem(item("c"), 1),), 2)
    assert await lease(world, "a") == Lease((), 1)
    await world.store.work.finish_item(BATCH, owner="b", item=item("c"))
    assert await lease(world, "a") == Lease((), 0)
    await world.store.work.finish_item(BATCH, owner="a", item=item("a"))
    assert await lease(world, "b") == Lease((), 1)


async def test_a_lost_item_is_handed_out_again_and_counted(world: World) -> None:
    await put(world, "a")
    await lease(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await lease(world, "b") == Lease((LeasedItem(item("a"), 2),), 0)
    assert await lease(world, "c") == Lease((), 1)


async def test_lost_items_that_do_not_fit_are_still_elsewhere(world: World) -> None:
    await put(world, "abc")
    await lease(world, "a", ttl_s=SHORT_S, max_items=3)
    await world.let_expire()
    lost = await lease(world, "b", max_items=2)
    assert len(lost.items) == 2
    assert lost.num_elsewhere == 1


async def test_a_worker_keeps_its_expired_items_until_another_takes_them(world: World) -> None:
    await put(world, "a")
    await lease(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await lease(world, "a") == Lease((), 0)
    assert await world.store.work.renew_leases(BATCH, owner="a", ttl_s=LONG_S) == 1
    assert await lease(world, "b") == Lease((), 1)


async def test_renewing_extends_all_of_the_owners_leases_and_no_others(world: World) -> None:
    await put(world, "abc")
    await lease(world, "a", ttl_s=SHORT_S, max_items=2)
    await lease(world, "b", ttl_s=SHORT_S)
    assert await world.store.work.renew_leases(BATCH, owner="a", ttl_s=LONG_S) == 2
    await world.let_expire()
    assert await names(world, "c", max_items=9) == "c"
    assert await world.store.work.renew_leases(BATCH, owner="b", ttl_s=LONG_S) == 0


async def test_a_returned_item_is_offered_and_its_hand_out_not_counted(world: World) -> None:
    await put(world, "a")
    for owner in "abcde":
        assert (await lease(world, owner)).items == (LeasedItem(item("a"), 1),)
        await world.store.work.return_item(BATCH, owner=owner, item=item("a"))


async def test_only_the_holder_finishes_or_returns_an_item(world: World) -> None:
    await put(world, "a")
    await lease(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    await lease(world, "b")
    await world.store.work.finish_item(BATCH, owner="a", item=item("a"))
    await world.store.work.return_item(BATCH, owner="a", item=item("a"))
    assert await lease(world, "c") == Lease((), 1)
    await world.store.work.finish_item(BATCH, owner="b", item=item("a"))
    await world.store.work.return_item(BATCH, owner="b", item=item("a"))
    assert await lease(world, "c") == Lease((), 0)


@pytest.mark.parametrize("max_deliveries", [1, 2, 3])
async def test_a_poisoned_item_is_named_after_its_last_loss(world: World, max_deliveries: int) -> None:
    await put(world, "a")
    for attempt in range(max_deliveries):
        given = await lease(world, f"w{attempt}", ttl_s=SHORT_S, max_deliveries=max_deliveries)
        assert given.items == (LeasedItem(item("a"), attempt + 1),)
        await world.let_expire()
    for _ in range(2):
        assert await lease(world, "next", max_deliveries=max_deliveries) == Lease((), 1, item("a"))


async def test_the_last_hand_out_of_a_lost_item_goes_alone_so_that_the_guilty_one_is_named(world: World) -> None:
    await put(world, "aXb")
    await lose(world, "w", 2, max_items=3)
    finished = []
    while (given := await lease(world, f"v{len(finished)}", ttl_s=SHORT_S, max_items=3)).poisoned is None:
        assert len(given.items) == 1
        [leased] = given.items
        assert leased.delivery == 3
        if leased.item.row_uid != "X":
            await world.store.work.finish_item(BATCH, owner=f"v{len(finished)}", item=leased.item)
        finished.append(leased.item.row_uid)
        await world.let_expire()
    assert given.poisoned == item("X")
    assert set(finished) <= set("aXb")


async def test_a_last_chance_waits_for_a_worker_that_holds_nothing_and_keeps_others_off_it(world: World) -> None:
    await put(world, "ab")
    await lose(world, "w", 1, max_items=1)
    assert await names(world, "busy", max_deliveries=2) == "b"
    assert await lease(world, "busy", max_deliveries=2) == Lease((), 1)
    await world.store.work.return_item(BATCH, owner="busy", item=item("b"))
    assert await names(world, "idle", max_items=9, max_deliveries=2) == "b"
    await world.store.work.return_item(BATCH, owner="idle", item=item("b"))
    assert await names(world, "third", max_deliveries=2) == "b"
    assert await names(world, "alone", max_items=9, max_deliveries=2) == "a"
    await world.store.work.return_item(BATCH, owner="third", item=item("b"))
    assert await names(world, "alone", max_items=9, max_deliveries=2) == ""
    await world.store.work.finish_item(BATCH, owner="alone", item=item("a"))
    assert await names(world, "alone", max_items=9, max_deliveries=2) == "b"


async def test_a_returned_last_chance_blocks_nothing_behind_it_for_good(world: World) -> None:
    await put(world, "", offered="ab")
    await lose(world, "w", 1)
    assert await names(world, "v", max_items=9, max_deliveries=2) == "b"
    await world.store.work.finish_item(BATCH, owner="v", item=item("b"))
    assert await names(world, "v", max_items=9, max_deliveries=2) == "a"
    await world.store.work.return_item(BATCH, owner="v", item=item("a"))
    assert (await lease(world, "u", max_items=9, max_deliveries=2)).items == (LeasedItem(item("a"), 2),)


async def test_an_item_is_returned_in_parts_each_to_its_actor(world: World) -> None:
    await put(world, "a", "b", "c")
    await lease(world, "w", shard=0)
    one, two = (WorkItem(row_uid="a", samples=(sample,)) for sample in (0, 1))
    await world.store.work.return_item(BATCH, owner="w", item=item("a"), parts=[Part(2, one), Part(None, two)])
    assert await world.store.work.num_queued(BATCH) == 4
    assert [leased.item for leased in (await lease(world, "two", shard=2, max_items=2)).items] == [item("c"), one]
    assert [leased.item for leased in (await lease(world, "one", shard=1, max_items=2)).items] == [item("b"), two]
    assert await world.store.work.num_queued(BATCH) == 0
    await world.store.work.finish_item(BATCH, owner="two", item=one)
    assert await lease(world, "w") == Lease((), 3)


async def test_a_part_for_an_actor_that_the_batch_does_not_have_is_offered_to_all(world: World) -> None:
    await put(world, "a", "b")
    await lease(world, "w", shard=0)
    await world.store.work.return_item(BATCH, owner="w", item=item("a"), parts=[Part(7, item("a"))])
    assert await names(world, "v", shard=1, max_items=2) == "ba"


async def test_a_part_was_handed_out_as_often_as_its_item(world: World) -> None:
    await put(world, "a")
    await lose(world, "w", 1)
    await lease(world, "v")
    part = WorkItem(row_uid="a", samples=(1,))
    await world.store.work.return_item(BATCH, owner="v", item=item("a"), parts=[Part(0, part)])
    assert (await lease(world, "u", ttl_s=SHORT_S)).items == (LeasedItem(part, 2),)
    await world.let_expire()
    assert (await lease(world, "t", ttl_s=SHORT_S)).items == (LeasedItem(part, 3),)
    await world.let_expire()
    assert (await lease(world, "s")).poisoned == part


async def test_who_no_longer_holds_an_item_returns_no_part_of_it(world: World) -> None:
    await put(world, "a")
    await lease(world, "w", ttl_s=SHORT_S)
    await world.let_expire()
    await lease(world, "v")
    await world.store.work.return_item(BATCH, owner="w", item=item("a"), parts=[Part(0, item("a"))])
    assert await world.store.work.num_queued(BATCH) == 0
    await world.store.work.return_item(BATCH, owner="v", item=item("a"))
    await world.store.work.return_item(BATCH, owner="v", item=item("a"))
    assert await world.store.work.num_queued(BATCH) == 1


async def test_what_waits_for_actors_that_have_gone_is_offered_to_all(world: World) -> None:
    await put(world, "ab", "", "c", "d", offered="e")
    assert await world.store.work.offer_queues(BATCH, shards=[0, 1, 2, 7]) == 3
    assert await names(world, "busy", shard=1, max_items=1) == "e"
    assert await names(world, "busy", shard=1, max_items=9) == "abc"
    assert await world.store.work.offer_queues(BATCH, shards=[0, 1, 2]) == 0
    assert await world.store.work.offer_queues(BATCH, shards=[]) == 0
    assert await names(world, "three", shard=3, max_items=9) == "d"


async def test_a_worker_learns_how_much_still_waits_for_it(world: World) -> None:
    await put(world, "abc", "de", offered="f")
    assert (await lease(world, "w", shard=0)).num_queued == 3
    assert (await lease(world, "v", shard=1, max_items=9)).num_queued == 0
    assert (await lease(world, "w", shard=0, max_items=9)).num_queued == 0


async def test_a_lower_fence_gets_no_work_and_puts_none(world: World) -> None:
    await world.run(num_owners=2)
    with pytest.raises(StaleFence) as refused:
        await put(world, "a", fence=1)
    assert refused.value.details == {"fence": 2}
    await put(world, "b", fence=2)
    with pytest.raises(StaleFence):
        await lease(world, "w", fence=1)
    assert await names(world, "w", fence=2) == "b"


async def test_a_newer_owner_of_the_run_offers_again_what_was_held_and_counts_anew(world: World) -> None:
    await put(world, "ab", fence=1)
    await lease(world, "alive")
    await lose(world, "w", 3)
    await put(world, "zzz", fence=1)
    assert (await lease(world, "w", fence=1)).poisoned == item("b")
    await put(world, "zzz", fence=2)
    fresh = await lease(world, "v", fence=2, max_items=9)
    assert fresh.num_elsewhere == 0
    assert sorted(leased.item.row_uid for leased in fresh.items) == ["a", "b"]
    assert {leased.delivery for leased in fresh.items} == {1}
    assert await world.store.work.renew_leases(BATCH, owner="alive", ttl_s=LONG_S) == 0


async def test_nothing_joins_a_last_chance(world: World) -> None:
    await put(world, "", "b", offered="a")
    await lose(world, "w", 1)
    assert await names(world, "x", max_deliveries=2) == "b"
    assert await names(world, "y", max_deliveries=2) == "a"
    for owner, name in (("y", "a"), ("x", "b")):
        await world.store.work.return_item(BATCH, owner=owner, item=item(name))
    assert await names(world, "z", max_items=9, max_deliveries=2) == "a"


async def test_items_that_may_be_handed_out_once_only_go_together(world: World) -> None:
    await put(world, "abc")
    assert await names(world, "w", max_items=2, max_deliveries=1) == "ab"
    assert await names(world, "w", max_items=2, max_deliveries=1) == "c"


async def test_lost_items_go_out_in_the_order_of_their_loss(world: World) -> None:
    await put(world, "ba")
    await lease(world, "w", ttl_s=SHORT_S)
    await world.let_expire()
    await lease(world, "w", ttl_s=SHORT_S)
    await world.let_expire()
    assert await names(world, "v", max_items=2) == "ba"
    await put(world, fence=1)
    assert await names(world, "u", max_items=2, ttl_s=SHORT_S) in ("ab", "ba")
    await world.let_expire()
    assert await names(world, "t", max_items=2) == "ab"


async def test_many_workers_get_each_item_exactly_once(world: World) -> None:
    num_items, num_workers = 200, 8
    everything = [item(f"row-{index}") for index in range(num_items)]
    await world.store.work.put_items(
        BATCH, fence=0, assigned=[everything[shard:100:num_workers] for shard in range(6)], offered=everything[100:]
    )
    await world.store.work.put_items(BATCH, fence=0, assigned=[], offered=everything)
    expected = Counter([leased for shard in range(6) for leased in everything[shard:100:num_workers]])
    expected += Counter(everything[100:])

    async def work(shard: int) -> list[WorkItem]:
        done: list[WorkItem] = []
        while given := (await lease(world, f"w{shard}", shard=shard, max_items=3)).items:
            for leased in given:
                assert leased.delivery == 1
                await world.store.work.finish_item(BATCH, owner=f"w{shard}", item=leased.item)
                done.append(leased.item)
        return done

    done = await asyncio.gather(*(work(shard) for shard in range(num_workers)))
    assert Counter(leased for items in done for leased in items) == expected
