"""Streams that are followed come from a real server: without one a client sees them only when they end."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from controller.api.event_stream import log_line
from controller.api.request import Pace
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from shared.store.base import Event
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import called, served

RUN = "/v1/runs/run-0"


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.add("run-0")
    return service


@pytest.fixture
async def client(service: FakeService) -> AsyncIterator[httpx.AsyncClient]:
    async with called(service) as client:
        yield client


@pytest.fixture
async def follower(service: FakeService) -> AsyncIterator[httpx.AsyncClient]:
    async with served(service) as url, httpx.AsyncClient(base_url=url) as client:
        yield client


def steps(text: str) -> list[int]:
    """Steps of the events in a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [data["step"] for line in lines if "step" in (data := json.loads(line))]


async def test_events_have_id_kind_and_data(service: FakeService, client: httpx.AsyncClient) -> None:
    await service.emit("run-0", "log", {"level": "info", "message": "one\ntwo ☃", "x": float("inf")})
    response = await client.get(f"{RUN}/events?follow=false")
    assert response.headers["content-type"].startswith("text/event-stream")
    data = '{"level": "info", "message": "one\\ntwo \\u2603", "x": null}'
    assert response.text == f": connected\n\nid: 1700000000000-0\nevent: log\ndata: {data}\n\n"


async def test_what_is_there_is_read_in_full_and_ends(service: FakeService, client: httpx.AsyncClient) -> None:
    for step in range(7):
        await service.emit("run-0", "step", {"step": step})
    assert steps((await client.get(f"{RUN}/events?follow=false")).text) == list(range(7))


@pytest.mark.parametrize("as_header", [True, False])
async def test_a_reader_resumes_after_the_last_event_it_saw(
    service: FakeService, client: httpx.AsyncClient, as_header: bool
) -> None:
    for step in range(5):
        await service.emit("run-0", "step", {"step": step})
    seen = "1700000000002-0"
    headers = {"Last-Event-ID": seen} if as_header else {}
    query = "after=0" if as_header else f"after={seen}"
    response = await client.get(f"{RUN}/events?follow=false&{query}", headers=headers)
    assert steps(response.text) == [3, 4]


async def test_a_follower_sees_events_as_they_happen_until_the_run_ends(
    service: FakeService, follower: httpx.AsyncClient
) -> None:
    seen = []
    async with follower.stream("GET", f"{RUN}/events") as response:
        async for line in response.aiter_lines():
            if line == ": connected":
                await service.emit("run-0", "step", {"step": 0})
            elif line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: ")))
                if "state" not in seen[-1]:
                    await service.emit("run-0", "state", {"state": RunState.SUCCEEDED})
    assert seen == [{"step": 0}, {"state": "succeeded"}]


async def test_the_last_words_of_an_ended_run_are_waited_for(service: FakeService) -> None:
    service.add("run-0", RunState.FAILED)

    async def speak_late() -> None:
        await service.waiting.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        await service.emit("run-0", "log", {"message": "late"})

    speaking = asyncio.create_task(speak_late())
    async with served(service, pace=Pace(settle_s=0.2)) as url, httpx.AsyncClient(base_url=url) as client:
        assert "late" in (await client.get(f"{RUN}/events")).text
    await speaking


async def test_an_old_end_does_not_stop_the_stream_of_a_resumed_run(
    service: FakeService, follower: httpx.AsyncClient
) -> None:
    await service.emit("run-0", "state", {"state": RunState.FAILED})
    await service.emit("run-0", "state", {"state": RunState.RUNNING})
    async with follower.stream("GET", f"{RUN}/events") as response:
        states = []
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                states.append(json.loads(line.removeprefix("data: "))["state"])
                if states == ["failed", "running"]:
                    await service.emit("run-0", "state", {"state": RunState.SUCCEEDED})
    assert states == ["failed", "running", "succeeded"]


async def test_silence_is_filled_with_signs_of_life(follower: httpx.AsyncClient) -> None:
    async with follower.stream("GET", f"{RUN}/events") as response:
        signs = 0
        async for line in response.aiter_lines():
            signs += line == ": still here"
            if signs == 2:
                break


async def test_a_reader_that_leaves_is_no_longer_waited_on(service: FakeService) -> None:
    async with served(service, pace=Pace(heartbeat_s=60)) as url, httpx.AsyncClient(base_url=url) as client:
        async with client.stream("GET", f"{RUN}/events"):
            await service.waiting.wait()
            assert not service.given_up.is_set()
        await service.given_up.wait()


async def test_a_lost_store_and_a_deleted_run_end_the_stream(service: FakeService, follower: httpx.AsyncClient) -> None:
    async with follower.stream("GET", f"{RUN}/events") as response:
        async for line in response.aiter_lines():
            if line == ": connected":
                service.failure = StoreUnavailable("Redis did not answer")
    service.failure = None
    async with follower.stream("GET", f"{RUN}/events") as response:
        async for line in response.aiter_lines():
            if line == ": connected":
                del service.records["run-0"]


@pytest.mark.parametrize(
    "after", ["x", "-1", "1-", "1-2-3", "$", "0\n", str(2**64), f"1-{2**64}", "1" * 21, "9" * 5000]
)
async def test_a_place_that_no_log_has_is_refused(client: httpx.AsyncClient, after: str) -> None:
    response = await client.get(f"{RUN}/events", params={"after": after})
    assert response.status_code == 422
    assert response.json()["problems"][0]["field"] == "query.after"
    if "\n" not in after:
        response = await client.get(f"{RUN}/events", headers={"Last-Event-ID": after})
        assert response.json()["problems"][0]["field"] == "header.last-event-id"


async def test_logs_are_lines_of_text(service: FakeService, client: httpx.AsyncClient) -> None:
    await service.emit("run-0", "log", {"level": "warning", "message": "odd\nERROR   forged"})
    await service.emit("run-0", "progress", {"phase": "starting"})
    await service.emit("run-0", "eval", {"step": 0, "accuracy": 0.34375})
    response = await client.get(f"{RUN}/logs")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text.splitlines() == [
        "2023-11-14T22:13:20Z WARNING odd",
        "    ERROR   forged",
        "2023-11-14T22:13:20Z INFO    evaluation at step 0: accuracy 0.3438",
    ]


async def test_logs_are_followed_on_request(service: FakeService, follower: httpx.AsyncClient) -> None:
    await service.emit("run-0", "log", {"level": "info", "message": "first"})
    lines = []
    async with follower.stream("GET", f"{RUN}/logs?follow=true") as response:
        async for line in response.aiter_lines():
            lines.append(line)
            if len(lines) == 1:
                await service.emit("run-0", "state", {"state": RunState.CANCELLED})
    assert [line.split(maxsplit=1)[1] for line in lines] == ["INFO    first", "INFO    run cancelled"]


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        ("state", {"state": "failed", "reason": "disk full"}, "ERROR   run failed: disk full"),
        ("state", {"state": "running"}, "INFO    run running"),
        (
            "step",
            {
                "step": 3,
                "metrics": {"critic/score/mean": 0.5, "response_length/mean": 20.25, "timing_s/step": 1.234567},
            },
            "INFO    step 3: reward 0.5, completion tokens 20.25, seconds 1.235",
        ),
        ("step", {"step": 3, "metrics": {"critic/score/mean": float("nan")}}, "INFO    step 3: "),
        ("checkpoint", {"step": 4, "folder": "/c/global_step_4"}, "INFO    checkpoint of step 4: /c/global_step_4"),
        ("eval", {"step": 0}, "INFO    evaluation at step 0: accuracy unknown"),
        ("progress", {"phase": "step"}, None),
        ("news", {"of": "a later version"}, None),
    ],
)
def test_each_kind_of_event_is_a_line(kind: str, data: dict[str, object], line: str | None) -> None:
    assert log_line(Event("7-0", kind, data)) == line
