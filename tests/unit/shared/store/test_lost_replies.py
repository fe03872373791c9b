"""A command ran, its reply was lost with the connection, and it is sent again: nothing happens twice."""

from shared.contracts.call import BatchKey, CallKey
from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Granted, LeasedItem, Owned, Stored
from tests.unit.shared.store.conftest import LONG_S, Lossy, run_record

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)
KEY = CallKey(**dict(BATCH), stage=Stage.LEARNER)
ITEMS = [WorkItem(row_uid=name, samples=(0,)) for name in "abc"]


async def test_a_lease_whose_reply_was_lost_hands_out_the_same_items(lossy: Lossy) -> None:
    work = lossy.store.work

    async def lease(owner: str) -> tuple[LeasedItem, ...]:
        lease = await work.lease(BATCH, shard=0, owner=owner, fence=0, ttl_s=LONG_S, max_items=1, max_deliveries=3)
        return lease.items

    await work.put_items(BATCH, fence=0, assigned=[], offered=ITEMS)
    assert await lease("w") == (LeasedItem(ITEMS[0], 1),)
    # The request before the lease asks for the number of queues; only its script changes anything.
    lossy.proxy.lose_reply(2)
    assert await lease("w") == (LeasedItem(ITEMS[1], 1),)
    assert lossy.proxy.num_lost == 1
    assert await work.renew_leases(BATCH, owner="w", ttl_s=LONG_S) == 2
    assert await lease("w") == (LeasedItem(ITEMS[2], 1),)
    assert await lease("w") == ()


async def test_a_transition_whose_reply_was_lost_is_true(lossy: Lossy) -> None:
    runs = lossy.store.runs
    await runs.create(run_record("run-1"), idempotency_key=None, digest="d")
    await runs.transition("run-1", to="queued", allowed=["queued"])
    lossy.proxy.lose_reply()
    assert await runs.transition("run-1", to="running", allowed=["queued"])
    assert lossy.proxy.num_lost == 1
    assert not await runs.transition("run-1", to="running", allowed=["queued"])


async def test_a_claim_and_a_commit_whose_replies_were_lost_are_the_owners(lossy: Lossy) -> None:
    calls = lossy.store.calls
    other = KEY.model_copy(update={"step": 1})
    await calls.claim(other, digest="d", owner="a", fence=0, ttl_s=LONG_S)
    await calls.commit(other, owner="a", fence=0, reply=b"r")
    lossy.proxy.lose_reply()
    assert await calls.claim(KEY, digest="d", owner="a", fence=0, ttl_s=LONG_S) == Granted()
    lossy.proxy.lose_reply()
    assert await calls.commit(KEY, owner="a", fence=0, reply=b"r") == Stored(b"r")
    assert lossy.proxy.num_lost == 2


async def test_ownership_and_the_head_bear_lost_replies(lossy: Lossy) -> None:
    runs = lossy.store.runs
    await runs.create(run_record("run-1"), idempotency_key=None, digest="d")
    assert await runs.acquire("run-1", owner="a", ttl_s=LONG_S) == Owned(1, False)
    lossy.proxy.lose_reply()
    owned = await runs.acquire("run-1", owner="a", ttl_s=LONG_S)
    assert owned is not None
    assert await runs.renew("run-1", owner="a", ttl_s=LONG_S) == owned
    await runs.advance("run-1", fence=owned.fence, expected=None, manifest=b"v0", history={})
    lossy.proxy.lose_reply()
    assert await runs.advance("run-1", fence=owned.fence, expected=b"v0", manifest=b"v1", history={"step": 0})
    assert await runs.history("run-1") == [{"step": 0}]
    assert lossy.proxy.num_lost == 2


async def test_a_creation_bears_a_lost_reply_to_each_of_its_commands(lossy: Lossy) -> None:
    runs = lossy.store.runs
    for lost in (1, 2, 3):
        lossy.proxy.lose_reply(lost)
        record = run_record(f"run-{lost}")
        assert await runs.create(record, idempotency_key=f"key-{lost}", digest="d") == record
        assert lossy.proxy.num_lost == lost
        assert await runs.create(run_record("other"), idempotency_key=f"key-{lost}", digest="d") == record
    assert [run.id for run in await runs.list()] == ["run-1", "run-2", "run-3"]


async def test_samples_and_items_are_stored_once(lossy: Lossy) -> None:
    work, sample = lossy.store.work, SampleId("row", 0)
    await work.commit_samples(BATCH, fence=0, samples={SampleId("row", 1): b"x"})
    lossy.proxy.lose_reply()
    await work.commit_samples(BATCH, fence=0, samples={sample: b"c"})
    assert await work.samples(BATCH, [sample]) == {sample: b"c"}
    assert await work.num_samples(BATCH) == 2
    await work.put_items(BATCH.model_copy(update={"step": 1}), fence=0, assigned=[], offered=ITEMS)
    lossy.proxy.lose_reply()
    await work.put_items(BATCH, fence=0, assigned=[], offered=ITEMS)
    lease = await work.lease(BATCH, shard=0, owner="w", fence=0, ttl_s=LONG_S, max_items=9, max_deliveries=3)
    assert len(lease.items) == 3
    for again in (True, False):
        item = lease.items[int(again)].item
        lossy.proxy.lose_reply()
        await (work.return_item if again else work.finish_item)(BATCH, owner="w", item=item)
    back = await work.lease(BATCH, shard=0, owner="v", fence=0, ttl_s=LONG_S, max_items=9, max_deliveries=3)
    assert back.items == (LeasedItem(ITEMS[1], 1),)
    assert back.num_elsewhere == 1
