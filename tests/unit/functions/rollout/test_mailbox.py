"""The mailbox of a busy worker."""

import asyncio
import logging

import pytest

from functions.rollout import mailbox
from functions.rollout.mailbox import Mail, watch_mail
from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreUnavailable
from shared.contracts.stage import Purpose
from shared.service.beside import beside
from shared.service.stop_flag import StopFlag
from shared.store.base import WorkStore
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=3)


@pytest.fixture
def work(redis: RedisConnection, monkeypatch: pytest.MonkeyPatch) -> WorkStore:
    monkeypatch.setattr(mailbox, "LOOK_EVERY_S", 0.002)
    return redis_store(redis).work


async def until_set(interrupt: StopFlag) -> None:
    for _ in range(2000):
        if interrupt.is_set():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("no mail was noticed")


@pytest.mark.parametrize("message", Mail)
@pytest.mark.parametrize("shard", [1, None], ids=["to this worker", "to all"])
async def test_a_message_interrupts(work: WorkStore, message: Mail, shard: int | None) -> None:
    interrupt = StopFlag()
    async with beside(watch_mail(work, BATCH, 1, interrupt)):
        await asyncio.sleep(0.01)
        assert not interrupt.is_set()
        await work.post(BATCH, shard=shard, message=message)
        await until_set(interrupt)
    assert interrupt.reason == message


async def test_a_message_from_before_is_found_at_once(work: WorkStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "LOOK_EVERY_S", 3600.0)
    await work.post(BATCH, shard=1, message=Mail.CUT)
    interrupt = StopFlag()
    async with beside(watch_mail(work, BATCH, 1, interrupt)):
        await until_set(interrupt)


async def test_mail_for_others_and_unknown_words_do_not(work: WorkStore, caplog: pytest.LogCaptureFixture) -> None:
    interrupt = StopFlag()
    await work.post(BATCH, shard=2, message=Mail.CANCEL)
    with caplog.at_level(logging.WARNING):
        async with beside(watch_mail(work, BATCH, 1, interrupt)):
            await work.post(BATCH, shard=1, message="dance")
            await asyncio.sleep(0.05)
    assert not interrupt.is_set()
    assert [record.getMessage() for record in caplog.records] == ["unknown message 'dance'"]


async def test_a_lost_store_is_asked_again(work: WorkStore) -> None:
    class Lossy:
        num_asked = 0

        async def mail(self, batch: BatchKey, *, shard: int) -> str | None:
            self.num_asked += 1
            if self.num_asked < 3:
                raise StoreUnavailable("Redis did not answer")
            return Mail.CUT

    interrupt = StopFlag()
    async with beside(watch_mail(Lossy(), BATCH, 1, interrupt)):
        await until_set(interrupt)
