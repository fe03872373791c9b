"""What a handler may use."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.service.handler import CallContext
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from tests.unit.shared.service.stage_fakes import World


def context_of(world: World, *, deadline_at: float = 4e9) -> CallContext:
    replica = world.replica()
    return CallContext(
        store=replica.store,
        blobs=replica.blobs,
        owner="owner",
        instance=replica.instance,
        deadline_at=deadline_at,
        stop=StopFlag(),
        watch=Stopwatch(),
        executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute"),
    )


async def test_computations_share_one_thread_and_leave_the_loop_free(world: World) -> None:
    context, threads, go_on = context_of(world), [], threading.Event()

    def compute(value: int) -> int:
        threads.append(threading.current_thread().name)
        assert go_on.wait(10)
        return 2 * value

    computing = asyncio.gather(*(context.compute(compute, value) for value in range(3)))
    await asyncio.sleep(0.01)
    assert len(threads) == 1
    go_on.set()
    assert await computing == [0, 2, 4]
    assert set(threads) == {"compute_0"}


async def test_what_a_computation_raises_is_raised(world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        await context_of(world).compute(lambda: 1 // 0)


def test_time_remains_until_the_deadline(world: World) -> None:
    assert context_of(world, deadline_at=time.time() + 100).remaining_s() == pytest.approx(100, abs=3)
    assert context_of(world, deadline_at=time.time() - 100).remaining_s() == pytest.approx(-100, abs=3)
