"""Replicas forked by a real server: their ends, their children, and the end of the server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from controller.platforms.local.fork_client import ForkedProcess, ForkServerError, ForkServerProcess
from tests.unit.controller.platforms.local.waiting import runs, until

SLEEP = ("sh", "-c", "sleep 60")
SLEEP_WITH_CHILD = ("sh", "-c", "sleep 60 & echo $! ; wait")


@asynccontextmanager
async def fork_server(tmp_path: Path, preload: Sequence[str] = ()) -> AsyncIterator[ForkServerProcess]:
    server = await ForkServerProcess.start(
        sys.executable, preload=preload, env=dict(os.environ), log=tmp_path / "server.log"
    )
    try:
        yield server
    finally:
        await server.close()


async def spawn(server: ForkServerProcess, tmp_path: Path, argv: Sequence[str], name: str = "a") -> ForkedProcess:
    return await server.spawn(name, argv=argv, env=dict(os.environ), log=tmp_path / f"{name}.log")


async def child_of(log: Path) -> int:
    """Pid that a replica has written."""
    await until(lambda: log.exists() and log.read_text().endswith("\n"))
    return read_pid(log)


def read_pid(log: Path) -> int:
    return int(log.read_text())


async def test_exit_codes_and_logs(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        first = await spawn(server, tmp_path, ("sh", "-c", "echo to the log; exit 3"))
        second = await spawn(server, tmp_path, ("sh", "-c", "exit 0"), "b")
        assert await first.exit_status == 3
        assert await second.exit_status == 0
        assert (tmp_path / "a.log").read_text() == "to the log\n"


async def test_a_program_that_cannot_be_run_ends_with_a_traceback(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        process = await spawn(server, tmp_path, ("/no/such/program",))
        assert await process.exit_status == 1
        assert "No such file" in (tmp_path / "a.log").read_text()


async def test_a_python_module_has_what_the_server_imported(tmp_path: Path) -> None:
    async with fork_server(tmp_path, preload=["fractions", "not_there"]) as server:
        (tmp_path / "seen.py").write_text("import sys; sys.exit('fractions' in sys.modules)")
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        process = await server.spawn("a", argv=("python", "-m", "site"), env=env, log=tmp_path / "a.log")
        assert await process.exit_status == 0
        assert server.failed_imports == {"not_there": "ModuleNotFoundError: No module named 'not_there'"}
        assert os.getsid(os.getpid()) != process.pid


async def test_terminate_reaches_the_process_alone_and_its_end_ends_the_group(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        process = await spawn(server, tmp_path, SLEEP_WITH_CHILD)
        child = await child_of(tmp_path / "a.log")
        process.terminate()
        assert await process.exit_status == -signal.SIGTERM
        await until(lambda: not runs(child))


async def test_kill_ends_what_ignores_sigterm(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        process = await spawn(server, tmp_path, ("sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"))
        await child_of(tmp_path / "a.log")
        process.terminate()
        process.kill()
        assert await process.exit_status == -signal.SIGKILL


async def test_closing_ends_everything(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        process = await spawn(server, tmp_path, SLEEP_WITH_CHILD)
        child = await child_of(tmp_path / "a.log")
        assert runs(process.pid)
    assert await process.exit_status == -signal.SIGKILL
    assert not psutil.pid_exists(process.pid)
    await until(lambda: not runs(child))
    with pytest.raises(ForkServerError, match="has ended"):
        await spawn(server, tmp_path, SLEEP, "b")


async def test_a_server_that_is_killed_takes_its_replicas_along(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        process = await spawn(server, tmp_path, SLEEP_WITH_CHILD)
        child = await child_of(tmp_path / "a.log")
        psutil.Process(process.pid).parent().kill()  # type: ignore[union-attr]
        assert await process.exit_status == -signal.SIGKILL
        await until(lambda: not runs(process.pid) and not runs(child))
        assert not server.alive


async def test_who_gives_up_waiting_leaves_no_process(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        giving_up = asyncio.create_task(spawn(server, tmp_path, SLEEP, "gone"))
        await asyncio.sleep(0)
        giving_up.cancel()
        await asyncio.wait([giving_up])
        kept = await spawn(server, tmp_path, SLEEP, "kept")
        parent = psutil.Process(kept.pid).parent()
        assert parent is not None
        await until(lambda: [child.pid for child in parent.children()] == [kept.pid])


async def test_closing_during_the_imports_does_not_wait_for_them(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text("import time; time.sleep(600)")
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{os.getcwd()}"}
    server = await ForkServerProcess.start(
        sys.executable, preload=["slow_import"], env=env, log=tmp_path / "server.log"
    )
    waiting = asyncio.create_task(spawn(server, tmp_path, SLEEP))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        await server.close()
    with pytest.raises(ForkServerError, match="its log says why"):
        await waiting


async def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ForkServerError, match="cannot run /no/python: No such file"):
        await ForkServerProcess.start("/no/python", preload=(), env={}, log=tmp_path / "server.log")


CONTROLLER = """
import asyncio, os, sys
from pathlib import Path
from controller.platforms.local.fork_client import ForkServerProcess

async def main(folder):
    server = await ForkServerProcess.start(sys.executable, preload=(), env=dict(os.environ), log=folder / "server.log")
    await server.spawn("a", argv=("sh", "-c", "sleep 60 & echo $! ; wait"), env=dict(os.environ), log=folder / "a.log")
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(Path(sys.argv[1])))
"""


@asynccontextmanager
async def controller_with_a_replica(tmp_path: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[int]]]:
    """A controller's process, and the pids of its fork server, the replica and what the replica has started."""
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert controller.stdout is not None
    assert await controller.stdout.readline() == b"up\n"
    await child_of(tmp_path / "a.log")
    tree = [process.pid for process in psutil.Process(controller.pid).children(recursive=True)]
    assert len(tree) == 3
    try:
        yield controller, tree
    finally:
        for pid in filter(runs, tree):
            os.kill(pid, signal.SIGKILL)
        await controller.wait()


async def test_nothing_outlives_a_controller_that_is_killed(tmp_path: Path) -> None:
    async with controller_with_a_replica(tmp_path) as (controller, tree):
        controller.kill()
        await until(lambda: not any(runs(pid) for pid in tree))


async def test_no_replica_outlives_controller_and_fork_server(tmp_path: Path) -> None:
    async with controller_with_a_replica(tmp_path) as (controller, [server, replica, _]):
        controller.send_signal(signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
        await until(lambda: not runs(replica))
        controller.kill()
