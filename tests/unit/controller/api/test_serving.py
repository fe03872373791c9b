"""The API's server ends with the work that it is for, and the work with it."""

import asyncio
import contextlib

import httpx
import pytest

from controller.api.serving import listen, serve_beside
from controller.settings import SettingsInvalid
from tests.fakes.kubernetes.asgi import Message, Receive, Send, respond


async def api(scope: Message, receive: Receive, send: Send) -> None:
    await respond(send, 200, b"here")


async def test_an_api_whose_runs_nobody_drives_ends() -> None:
    failing = asyncio.Event()

    async def drive() -> None:
        await failing.wait()
        raise LookupError("what nobody thought of")

    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(serve_beside(asyncio.create_task(drive()), api, listener))
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(url)).text == "here"
        failing.set()
        with pytest.raises(LookupError, match="what nobody thought of"):
            await serving


async def test_both_end_when_they_are_told_to() -> None:
    driving = asyncio.create_task(asyncio.sleep(3600))
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        serving = asyncio.create_task(serve_beside(driving, api, listener))
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(url)).text == "here"
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert driving.cancelled()
            with pytest.raises(httpx.ConnectError):
                await client.get(url)


async def test_a_port_that_is_taken_is_named() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsInvalid, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
