"""Ending a task."""

import asyncio
import contextlib

from shared.service.ending import end_task


async def test_a_task_that_swallows_a_cancellation_is_ended_all_the_same() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    assert await end_task(task) is None
    assert task.cancelled()


async def test_what_a_task_failed_with_is_returned() -> None:
    async def failing() -> None:
        raise ValueError("broken")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    assert isinstance(await end_task(task), ValueError)
