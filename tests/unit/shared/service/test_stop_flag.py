"""The stop flag: one reason, seen from any thread, that also reaches what only waits."""

import asyncio

import pytest

from shared.contracts.errors import Cancelled
from shared.service.stop_flag import StopFlag


async def test_the_first_reason_counts() -> None:
    stop = StopFlag()
    assert (stop.is_set(), stop.reason) == (False, "")
    stop.raise_if_set()
    stop.set("first")
    stop.set("second")
    assert (stop.is_set(), stop.reason) == (True, "first")
    with pytest.raises(Cancelled, match="first"):
        stop.raise_if_set()


async def test_a_thread_sees_it() -> None:
    stop = StopFlag()

    def spin() -> str:
        while not stop.is_set():
            pass
        return stop.reason

    spinning = asyncio.create_task(asyncio.to_thread(spin))
    await asyncio.sleep(0.01)
    stop.set("now")
    assert await spinning == "now"


async def test_what_a_block_waits_for_is_interrupted() -> None:
    stop, left = StopFlag(), False

    async def block() -> None:
        nonlocal left
        async with stop.interrupting():
            try:
                await asyncio.Event().wait()
            finally:
                left = True

    asyncio.get_running_loop().call_later(0.01, stop.set, "enough")
    with pytest.raises(Cancelled, match="enough"):
        await block()
    assert left


async def test_a_flag_that_is_set_already_interrupts_too() -> None:
    stop = StopFlag()
    stop.set("before")
    with pytest.raises(Cancelled, match="before"):
        async with stop.interrupting():
            await asyncio.Event().wait()


async def test_a_block_that_ends_is_left_alone() -> None:
    stop = StopFlag()
    async with stop.interrupting():
        await asyncio.sleep(0)
    stop.set("later")
    await asyncio.sleep(0.001)


async def test_other_errors_and_timeouts_pass_through() -> None:
    stop = StopFlag()
    with pytest.raises(ZeroDivisionError):
        async with stop.interrupting():
            raise ZeroDivisionError
    with pytest.raises(TimeoutError):
        async with stop.interrupting(), asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def test_a_cancelled_task_is_cancelled_not_stopped() -> None:
    stop = StopFlag()

    async def block() -> None:
        async with stop.interrupting():
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
