"""Warm child processes: reused for the same function, replaced when unusable, few kept."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from functions.reward.user_pool import UserPool
from functions.reward.user_process import UserCode, worker_environment


@pytest.fixture
async def pool() -> AsyncIterator[UserPool]:
    pool = UserPool(worker_environment(os.environ), load_limit_s=30.0, max_idle=1)
    yield pool
    await pool.close()


@pytest.fixture
def file(tmp_path: Path) -> UserCode:
    path = tmp_path / "reward.py"
    path.write_text("def compute_score(solution_str): return 1.0\ndef other(solution_str): return 2.0")
    return UserCode(path, "compute_score", "0")


async def test_a_process_is_reused_for_the_same_function_alone(pool: UserPool, file: UserCode) -> None:
    async with pool.process(file) as first:
        pass
    async with pool.process(file) as again:
        assert again is first
    async with pool.process(UserCode(file.path, "other", "0")) as other:
        assert other is not first
    assert not first.usable  # The idle one made room.
    async with pool.process(UserCode(file.path, "other", "1")) as edited:
        assert edited is not other


async def test_calls_at_one_time_have_processes_of_their_own(pool: UserPool, file: UserCode) -> None:
    async with pool.process(file) as first, pool.process(file) as second:
        assert first is not second
    assert [first.usable, second.usable].count(True) == 1


async def test_a_process_is_ended_when_its_block_raises(pool: UserPool, file: UserCode) -> None:
    with pytest.raises(RuntimeError):
        async with pool.process(file) as first:
            raise RuntimeError
    assert not first.usable
    async with pool.process(file) as second:
        assert second is not first


async def test_a_killed_process_takes_no_idle_place(pool: UserPool, file: UserCode) -> None:
    async with pool.process(file) as kept:
        pass
    async with pool.process(UserCode(file.path, "other", "0")) as other:
        other.kill()
    async with pool.process(file) as again:
        assert again is kept


async def test_closing_ends_the_idle_ones(pool: UserPool, file: UserCode) -> None:
    async with pool.process(file) as process:
        pass
    await pool.close()
    assert not process.usable
