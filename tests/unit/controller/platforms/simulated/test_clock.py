"""Virtual time passes only where somebody waits for it."""

import asyncio
from concurrent.futures import Executor

import pytest

from controller.platforms.simulated.clock import (
    EPOCH,
    VirtualTimeLoop,
    VirtualTimeStopped,
    run_virtual,
    spend,
    virtual_now,
)


def test_sleeping_costs_virtual_time_only() -> None:
    async def sleep_long() -> float:
        await asyncio.sleep(86_400)
        return virtual_now()

    assert run_virtual(sleep_long()) == EPOCH + 86_400


def test_tasks_wake_in_the_order_of_their_times() -> None:
    async def note(order: list[float], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        order.append(virtual_now() - EPOCH)

    async def several() -> list[float]:
        order: list[float] = []
        await asyncio.gather(*(note(order, delay_s) for delay_s in (3.0, 1.0, 2.5, 1.0)))
        return order

    assert run_virtual(several()) == [1.0, 1.0, 2.5, 3.0]


def test_a_timeout_ends_what_waits_longer() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(100), timeout=7)
        return virtual_now() - EPOCH

    assert run_virtual(wait()) == 7


def test_a_computation_off_the_loop_takes_no_virtual_time() -> None:
    async def compute() -> tuple[int, float]:
        value = await asyncio.to_thread(lambda: sum(range(1000)))
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return value, virtual_now() - EPOCH

    assert run_virtual(compute()) == (499_500, 0.0)


def test_waiting_for_what_never_comes_is_an_error_not_a_hang() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    # The limit itself is a timer, and the only one.
    with pytest.raises(TimeoutError):
        run_virtual(wait_forever(), limit_s=3600)


def test_a_loop_without_any_timer_stops() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.raises(VirtualTimeStopped):
        runner.run(wait_forever())


def test_every_run_begins_at_the_epoch() -> None:
    async def now() -> float:
        moment = virtual_now()
        await asyncio.sleep(5)
        return moment

    assert [run_virtual(now()) for _ in range(2)] == [EPOCH, EPOCH]


def compute(duration_s: float) -> tuple[float, float]:
    """Spend so long; when it began and ended by its own clock."""
    began_at = virtual_now() - EPOCH
    spend(duration_s)
    return began_at, virtual_now() - EPOCH


def test_a_computation_takes_what_it_spends_while_others_go_on() -> None:
    async def both() -> tuple[tuple[float, float], float, float]:
        computing = asyncio.get_running_loop().run_in_executor(Executor(), compute, 5.0)
        await asyncio.sleep(2.0)
        meanwhile = virtual_now() - EPOCH
        return await computing, meanwhile, virtual_now() - EPOCH

    assert run_virtual(both()) == ((0.0, 5.0), 2.0, 5.0)


def test_one_thread_computes_one_thing_after_the_other_and_two_at_once() -> None:
    async def several() -> list[tuple[float, float]]:
        loop = asyncio.get_running_loop()
        one, other = Executor(), Executor()
        return await asyncio.gather(
            loop.run_in_executor(one, compute, 3.0),
            loop.run_in_executor(one, compute, 2.0),
            loop.run_in_executor(other, compute, 4.0),
        )

    assert run_virtual(several()) == [(0.0, 3.0), (3.0, 5.0), (0.0, 4.0)]


def test_a_computation_that_fails_fails_when_its_time_is_over() -> None:
    def fail() -> None:
        spend(2.0)
        raise ValueError("too late")

    async def wait() -> float:
        with pytest.raises(ValueError, match="too late"):
            await asyncio.get_running_loop().run_in_executor(Executor(), fail)
        return virtual_now() - EPOCH

    assert run_virtual(wait()) == 2.0


def test_nobody_waits_for_a_result_that_was_given_up() -> None:
    async def give_up() -> float:
        computing = asyncio.get_running_loop().run_in_executor(Executor(), compute, 5.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(computing, timeout=1.0)
        await asyncio.sleep(10.0)
        return virtual_now() - EPOCH

    assert run_virtual(give_up()) == 11.0


def test_real_time_cannot_be_spent() -> None:
    async def try_it() -> None:
        with pytest.raises(RuntimeError, match="virtual"):
            spend(1.0)

    asyncio.run(try_it())
