"""The client against a real server: what it makes of silence, restarts and refusals."""

import asyncio
import socket

import pytest

from controller.cli.client import ControllerClient, Refused, Unreachable
from controller.cli.settings import Connection
from controller.runs.state import RunState
from tests.unit.controller.api.fake_service import CONFIG, FakeService
from tests.unit.controller.api.serving import served


def client_of(url: str, *, token: str | None = None, patience_s: float = 60.0) -> ControllerClient:
    return ControllerClient(Connection(url=url, token=token), patience_s=patience_s)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_a_run_is_started_and_looked_at() -> None:
    async with served(FakeService(), token="secret") as url, client_of(url, token="secret") as client:
        run = await client.submit(CONFIG, ["rollout.n=4"])
        assert run["config"]["rollout"]["n"] == 4
        assert (await client.run(run["id"]))["state"] == "queued"
        assert [summary["id"] for summary in await client.runs(states=["queued"])] == [run["id"]]
        assert await client.runs(states=["failed", "running"]) == []


async def test_the_token_is_sent() -> None:
    async with served(FakeService(), token="secret") as url, client_of(url, token="wrong") as client:
        with pytest.raises(Refused, match="token") as refused:
            await client.runs()
    assert refused.value.status == 401


async def test_a_refused_config_carries_its_problems() -> None:
    async with served(FakeService()) as url, client_of(url) as client:
        with pytest.raises(Refused) as refused:
            await client.submit(CONFIG, ["rollout.n=1"])
    assert (refused.value.status, refused.value.code) == (422, "config_invalid")
    assert refused.value.problems[0]["field"] == "rollout.n"


async def test_a_run_is_one_part_of_a_path() -> None:
    async with served(FakeService()) as url, client_of(url) as client:
        for run in ("../functions", "a/b", "a?b=c", "a#b", "☃"):
            with pytest.raises(Refused) as refused:
                await client.run(run)
            assert refused.value.status == 404


async def test_nobody_there_is_unreachable() -> None:
    async with client_of(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(Unreachable, match="check that it runs"):
            await client.runs()
        with pytest.raises(Unreachable):
            _ = [event async for event in client.events("run-0")]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"SSH-2.0-OpenSSH_9.9\r\n"])
async def test_another_server_is_no_controller(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client:
        with pytest.raises(Unreachable):
            await client.runs()


async def test_events_are_read_across_a_restart_of_the_controller() -> None:
    service, port = FakeService(), free_port()
    service.add("run-0")
    seen = []
    async with client_of(f"http://127.0.0.1:{port}") as client:
        events = client.events("run-0")
        async with served(service, port=port):
            await service.emit("run-0", "step", {"step": 0})
            seen.append(await anext(events))
        await service.emit("run-0", "step", {"step": 1})
        waiting = asyncio.create_task(anext(events))
        async with served(service, port=port):
            seen.append(await waiting)
            await service.emit("run-0", "state", {"state": RunState.SUCCEEDED})
            seen += [event async for event in events]
    assert [event.data for event in seen] == [{"step": 0}, {"step": 1}, {"state": "succeeded"}]


async def test_a_controller_that_stays_away_is_given_up() -> None:
    service = FakeService()
    service.add("run-0")
    async with served(service) as url:
        client = client_of(url, patience_s=0.1)
        events = client.events("run-0")
        await service.emit("run-0", "step", {"step": 0})
        await anext(events)
    async with client:
        with pytest.raises(Unreachable):
            await anext(events)


async def test_a_run_that_is_deleted_while_it_is_followed_is_refused() -> None:
    service = FakeService()
    service.add("run-0")
    async with served(service) as url, client_of(url) as client:
        events = client.events("run-0")
        await service.emit("run-0", "step", {"step": 0})
        await anext(events)
        del service.records["run-0"]
        with pytest.raises(Refused, match="no run"):
            await anext(events)
