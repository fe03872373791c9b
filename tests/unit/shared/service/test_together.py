"""Coroutines at the same time."""

import asyncio

import pytest

from controller.platforms.simulated.clock import EPOCH, virtual_now
from shared.service.together import together
from tests.fakes.virtual import in_virtual_time


async def later(delay_s: float, answer: object) -> object:
    await asyncio.sleep(delay_s)
    if isinstance(answer, BaseException):
        raise answer
    return answer


@in_virtual_time
async def test_results_come_in_the_order_of_the_coroutines() -> None:
    assert await together([later(3, "a"), later(1, "b"), later(2, "c")]) == ["a", "b", "c"]
    assert virtual_now() == EPOCH + 3


@in_virtual_time
async def test_nothing_at_all_is_done_at_once() -> None:
    assert await together([]) == []


@in_virtual_time
async def test_the_first_failure_is_raised_as_itself_and_ends_the_others() -> None:
    ended: list[str] = []

    async def long() -> object:
        try:
            return await later(1000, "late")
        finally:
            ended.append("long")

    with pytest.raises(KeyError, match="first"):
        await together([long(), later(5, KeyError("first")), later(9, ValueError("second"))])
    assert ended == ["long"]
    assert virtual_now() == EPOCH + 5


@in_virtual_time
async def test_whoever_is_cancelled_ends_them_all() -> None:
    ended: list[float] = []

    async def long() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(virtual_now() - EPOCH)

    task = asyncio.create_task(together([long(), long()]))
    await asyncio.sleep(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [2.0, 2.0]
