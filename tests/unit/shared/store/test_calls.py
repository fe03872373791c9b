"""Claims and results of stage calls, on every adapter."""

import asyncio

import pytest

from shared.contracts.call import CallKey
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Busy, Conflict, Granted, Stale, Stored
from tests.unit.shared.store.conftest import LONG_S, SHORT_S, World

KEY = CallKey(run="run-1", purpose=Purpose.TRAIN, step=3, stage=Stage.LEARNER)


async def claim(world: World, owner: str, *, fence: int = 0, ttl_s: float = LONG_S, digest: str = "d") -> object:
    return await world.store.calls.claim(KEY, digest=digest, owner=owner, fence=fence, ttl_s=ttl_s)


async def test_a_free_key_is_granted_and_keeps_others_out(world: World) -> None:
    assert await claim(world, "a") == Granted()
    outcome = await claim(world, "b")
    assert isinstance(outcome, Busy)
    assert 0 < outcome.retry_after_s <= LONG_S


async def test_the_owner_is_granted_its_own_claim_again(world: World) -> None:
    await claim(world, "a")
    assert await claim(world, "a") == Granted()


async def test_keys_do_not_touch_each_other(world: World) -> None:
    await claim(world, "a")
    other = KEY.model_copy(update={"segment": 1})
    outcome = await world.store.calls.claim(other, digest="other", owner="b", fence=0, ttl_s=LONG_S)
    assert outcome == Granted()


async def test_an_expired_claim_goes_to_whoever_asks(world: World) -> None:
    await claim(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await claim(world, "b") == Granted()
    assert not await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)


async def test_renewing_moves_the_end_of_the_claim(world: World) -> None:
    await claim(world, "a", ttl_s=SHORT_S)
    assert await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)
    await world.let_expire()
    assert isinstance(await claim(world, "b"), Busy)
    assert await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=SHORT_S)
    await world.let_expire()
    assert await claim(world, "b") == Granted()


async def test_an_expired_claim_that_nobody_took_can_be_renewed(world: World) -> None:
    await claim(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)
    assert isinstance(await claim(world, "b"), Busy)


async def test_only_the_owner_renews(world: World) -> None:
    assert not await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)
    await claim(world, "a")
    assert not await world.store.calls.renew(KEY, owner="b", fence=0, ttl_s=LONG_S)


async def test_another_body_conflicts_before_and_after_the_result(world: World) -> None:
    await claim(world, "a")
    assert await claim(world, "b", digest="other") == Conflict()
    await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"r")
    assert await claim(world, "b", digest="other") == Conflict()


async def test_the_key_keeps_standing_for_its_body_after_a_release(world: World) -> None:
    await claim(world, "a")
    await world.store.calls.release(KEY, owner="a")
    assert await claim(world, "b", digest="other") == Conflict()
    assert await claim(world, "b") == Granted()


async def test_a_released_claim_can_be_neither_renewed_nor_committed(world: World) -> None:
    await claim(world, "a")
    await world.store.calls.release(KEY, owner="a")
    assert not await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)
    assert await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"late") == Busy(0.0)


async def test_releasing_is_the_owners_and_never_loses_a_result(world: World) -> None:
    await claim(world, "a")
    await world.store.calls.release(KEY, owner="b")
    assert isinstance(await claim(world, "b"), Busy)
    await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"r")
    await world.store.calls.release(KEY, owner="a")
    assert await claim(world, "b") == Stored(b"r")


async def test_the_first_commit_wins_and_later_ones_get_its_reply(world: World) -> None:
    reply = bytes(range(256))
    await claim(world, "a")
    assert await world.store.calls.commit(KEY, owner="a", fence=0, reply=reply) == Granted()
    assert await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"again") == Stored(reply)
    assert await world.store.calls.commit(KEY, owner="b", fence=0, reply=b"other") == Stored(reply)
    assert await claim(world, "c") == Stored(reply)
    assert not await world.store.calls.renew(KEY, owner="a", fence=0, ttl_s=LONG_S)


async def test_a_commit_without_the_claim_is_told_who_is_busy(world: World) -> None:
    await claim(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    await claim(world, "b")
    outcome = await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"lost")
    assert isinstance(outcome, Busy)
    assert 0 < outcome.retry_after_s <= LONG_S
    assert await world.store.calls.commit(KEY, owner="b", fence=0, reply=b"won") == Granted()
    assert await claim(world, "a") == Stored(b"won")


async def test_a_commit_to_a_key_that_nobody_claimed_stores_nothing(world: World) -> None:
    assert await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"r") == Busy(0.0)
    assert await claim(world, "b", digest="other") == Granted()


async def test_an_expired_claim_that_nobody_took_still_commits(world: World) -> None:
    await claim(world, "a", ttl_s=SHORT_S)
    await world.let_expire()
    assert await world.store.calls.commit(KEY, owner="a", fence=0, reply=b"r") == Granted()


async def test_a_higher_fence_takes_the_claim_at_once(world: World) -> None:
    await claim(world, "a", fence=1)
    assert await claim(world, "b", fence=2) == Granted()
    assert not await world.store.calls.renew(KEY, owner="a", fence=1, ttl_s=LONG_S)
    assert isinstance(await world.store.calls.commit(KEY, owner="a", fence=1, reply=b"old"), Busy)
    assert isinstance(await claim(world, "a", fence=1), Busy)


async def test_the_runs_fence_refuses_lower_ones_everywhere(world: World) -> None:
    await world.run(num_owners=1)
    await claim(world, "a", fence=1)
    await world.run(num_owners=1)
    assert await claim(world, "a", fence=1) == Stale(2)
    assert not await world.store.calls.renew(KEY, owner="a", fence=1, ttl_s=LONG_S)
    assert await world.store.calls.commit(KEY, owner="a", fence=1, reply=b"r") == Stale(2)
    assert await claim(world, "b", fence=2) == Granted()


async def test_a_newer_owner_of_the_run_finds_the_stored_result(world: World) -> None:
    await world.run(num_owners=1)
    await claim(world, "a", fence=1)
    await world.store.calls.commit(KEY, owner="a", fence=1, reply=b"r")
    await world.run(num_owners=1)
    assert await claim(world, "b", fence=2) == Stored(b"r")


@pytest.mark.parametrize("num_tasks", [50])
async def test_one_of_many_racing_claims_wins_and_one_commit(world: World, num_tasks: int) -> None:
    async def attempt(index: int) -> tuple[object, object]:
        owner = f"owner-{index}"
        claimed = await claim(world, owner)
        return claimed, await world.store.calls.commit(KEY, owner=owner, fence=0, reply=owner.encode())

    outcomes = await asyncio.gather(*(attempt(index) for index in range(num_tasks)))
    winners = [index for index, (_, committed) in enumerate(outcomes) if committed == Granted()]
    assert len(winners) == 1
    assert [index for index, (claimed, _) in enumerate(outcomes) if claimed == Granted()] == winners
    assert await claim(world, "late") == Stored(f"owner-{winners[0]}".encode())
