"""The mailbox of a busy worker."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from functions.rollout import mailbox as mailbox_module
from functions.rollout.mailbox import Mailbox
from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreUnavailable
from shared.contracts.rollout_mail import MailKind, RolloutMail, Taker
from shared.service.beside import beside
from shared.store.base import Mail, WorkStore
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.unit.functions.rollout.batch_world import BATCH, BatchWorld

FENCE = 4


@pytest.fixture
def work(redis: RedisConnection, monkeypatch: pytest.MonkeyPatch) -> WorkStore:
    monkeypatch.setattr(mailbox_module, "LOOK_EVERY_S", 0.002)
    return redis_store(redis).work


def mailbox_of(work: WorkStore, memory_world: BatchWorld, *, shard: int = 1, segment: int = 0) -> Mailbox:
    return Mailbox(work, memory_world.call(shard=shard, segment=segment, fence=FENCE))


async def post(work: WorkStore, kind: MailKind, *, shard: int | None = 1, **mail: Any) -> RolloutMail:
    message = RolloutMail(**{"kind": kind, "fence": FENCE, **mail})
    await work.post(BATCH, shard=shard, message=message.model_dump_json())
    return message


async def until(noticed: Callable[[], bool]) -> None:
    for _ in range(5000):
        if noticed():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("no mail was noticed")


async def until_set(mailbox: Mailbox) -> None:
    await until(mailbox.interrupt.is_set)


@pytest.mark.parametrize("kind", [MailKind.CUT, MailKind.CANCEL])
@pytest.mark.parametrize("shard", [1, None], ids=["to this worker", "to all"])
async def test_a_message_ends_the_call(
    work: WorkStore, memory_world: BatchWorld, kind: MailKind, shard: int | None
) -> None:
    mailbox = mailbox_of(work, memory_world)
    async with beside(mailbox.watch()):
        await asyncio.sleep(0.01)
        assert not mailbox.interrupt.is_set()
        sent = await post(work, kind, shard=shard, takers=(Taker(shard=2, free_slots=3),), with_kv=True)
        await until_set(mailbox)
    assert (mailbox.interrupt.reason, mailbox.ending) == (kind, sent)


async def test_the_first_of_two_cuts_counts(work: WorkStore, memory_world: BatchWorld) -> None:
    mailbox = mailbox_of(work, memory_world)
    first = await post(work, MailKind.CUT, takers=(Taker(shard=2, free_slots=3),))
    await post(work, MailKind.CUT, takers=(Taker(shard=3, free_slots=3),))
    async with beside(mailbox.watch()):
        await until_set(mailbox)
    assert mailbox.ending == first


async def test_a_message_from_before_is_found_at_once(
    work: WorkStore, memory_world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "LOOK_EVERY_S", 3600.0)
    await post(work, MailKind.CUT)
    mailbox = mailbox_of(work, memory_world)
    async with beside(mailbox.watch()):
        await until_set(mailbox)


async def test_mail_for_others_does_not(
    work: WorkStore, memory_world: BatchWorld, caplog: pytest.LogCaptureFixture
) -> None:
    mailbox = mailbox_of(work, memory_world, segment=2)
    await post(work, MailKind.CANCEL, shard=2)
    await post(work, MailKind.CANCEL, fence=FENCE - 1)
    await post(work, MailKind.CUT, segment=1)
    with caplog.at_level(logging.WARNING):
        async with beside(mailbox.watch()):
            await work.post(BATCH, shard=1, message="dance")
            await until(lambda: caplog.records != [])
    assert not mailbox.interrupt.is_set()
    assert [record.getMessage() for record in caplog.records] == ["unknown message 'dance'"]


async def test_word_of_work_is_told_once_and_ends_nothing(work: WorkStore, memory_world: BatchWorld) -> None:
    mailbox = mailbox_of(work, memory_world)
    async with beside(mailbox.watch()):
        assert not mailbox.take_nudge()
        await post(work, MailKind.WORK)
        await until(mailbox.take_nudge)
        assert not mailbox.take_nudge()
        await post(work, MailKind.WORK)
        await post(work, MailKind.CUT)
        await until_set(mailbox)
    assert mailbox.take_nudge()
    assert mailbox.interrupt.reason == MailKind.CUT


async def test_a_lost_store_is_asked_again(work: WorkStore, memory_world: BatchWorld) -> None:
    class Lossy:
        num_asked = 0

        async def mail(self, batch: BatchKey, *, shard: int, after: int = 0) -> Mail:
            self.num_asked += 1
            if self.num_asked < 3:
                raise StoreUnavailable("Redis did not answer")
            return Mail((RolloutMail(kind=MailKind.CUT, fence=FENCE).model_dump_json(),), after + 1)

    mailbox = mailbox_of(Lossy(), memory_world)
    async with beside(mailbox.watch()):
        await until_set(mailbox)
