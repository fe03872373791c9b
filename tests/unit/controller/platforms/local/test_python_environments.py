"""Environments: one server each, and another one when it has died."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from controller.platforms.local.fork_client import ForkServerError
from controller.platforms.local.python_environments import PythonEnvironments
from tests.unit.controller.platforms.local.waiting import runs, until


def environments(tmp_path: Path, **interpreters: str) -> PythonEnvironments:
    return PythonEnvironments({"": sys.executable, **interpreters}, preload=(), env=dict(os.environ), log_dir=tmp_path)


def server_of(pid: int) -> psutil.Process:
    parent = psutil.Process(pid).parent()
    assert parent is not None
    return parent


async def test_one_server_for_an_environment_until_it_dies(tmp_path: Path) -> None:
    pool = environments(tmp_path)

    async def spawn(name: str) -> int:
        process = await pool.spawn("", name, argv=("sleep", "60"), env=dict(os.environ), log=tmp_path / name)
        return process.pid

    try:
        first, second = await asyncio.gather(spawn("a"), spawn("b"))
        server = server_of(first)
        assert server_of(second) == server
        server.kill()
        await until(lambda: not runs(first) and not runs(second))

        async def another_server() -> bool:
            try:
                return server_of(await spawn("c")) != server
            except ForkServerError:  # its end has not been noticed yet
                return False

        await until(another_server)
    finally:
        await pool.close()


async def test_an_environment_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    pool = environments(tmp_path, other=str(tmp_path / "python"))
    with pytest.raises(ForkServerError, match="cannot run"):
        await pool.warm("other")
    (tmp_path / "python").symlink_to(sys.executable)
    await pool.warm("other")
    assert (tmp_path / "fork-server-other.log").exists()
    await pool.close()


async def test_nothing_starts_after_the_end(tmp_path: Path) -> None:
    pool = environments(tmp_path)
    await pool.close()
    with pytest.raises(ForkServerError, match="stops"):
        await pool.warm("")
