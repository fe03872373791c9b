"""Work beside a block: it ends with it, and neither hides the other's failure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.service.beside import beside


class Work:
    """Work that notes how it ended."""

    def __init__(self) -> None:
        self.ended = ""

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise

    async def fail(self) -> None:
        raise OSError("the work failed")


async def test_the_work_ends_with_the_block() -> None:
    work = Work()
    async with beside(work.run()):
        await asyncio.sleep(0)
        assert work.ended == ""
    assert work.ended == "cancelled"


async def test_work_that_ends_by_itself_is_fine() -> None:
    async with beside(asyncio.sleep(0)):
        await asyncio.sleep(0.001)


async def test_a_failure_of_the_work_shows_at_the_end_and_not_before() -> None:
    reached = False

    async def block() -> None:
        nonlocal reached
        async with beside(Work().fail()):
            await asyncio.sleep(0.001)
            reached = True

    with pytest.raises(OSError, match="the work failed"):
        await block()
    assert reached


@pytest.mark.parametrize("work", [Work().run, Work().fail], ids=["run", "fail"])
async def test_an_error_of_the_block_comes_first(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def block() -> None:
        async with beside(work()):
            await asyncio.sleep(0.001)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await block()


async def test_a_cancelled_block_ends_its_work() -> None:
    work = Work()

    async def block() -> None:
        async with beside(work.run()):
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended == "cancelled"
