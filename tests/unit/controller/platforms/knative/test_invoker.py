"""Calls over real HTTP to a small server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.platforms.base import FunctionUnreachable
from controller.platforms.knative.calls import Calls
from controller.platforms.knative.invoker import UNBOUNDED_CALLS, Invoker, Target, max_calls
from tests.fakes.kubernetes.asgi import Message, Receive, Send, body_of, headers_of, respond, served


class Function:
    """Notes what reaches it, and answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.num_running = self.most_running = 0
        self.answer = (200, b"done")
        self.go_on, self.two_run = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        self.asked.append((scope["method"], scope["path"], headers_of(scope), body))
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        if self.num_running == 2:
            self.two_run.set()
        try:
            await self.go_on.wait()
            await respond(send, self.answer[0], self.answer[1], {"x-served-by": "me", "location": "http://elsewhere/"})
        finally:
            self.num_running -= 1


@asynccontextmanager
async def invoking(
    function: Function, *, host: str = "", limit: int = 4
) -> AsyncIterator[tuple[Invoker, Target, Calls]]:
    calls = Calls(lambda: 5.0)
    invoker = Invoker(calls)
    async with served(function) as address:
        try:
            yield invoker, Target(function="rollout", url=f"http://{address}", host=host, max_calls=limit), calls
        finally:
            await invoker.close()


async def test_a_body_is_posted_with_the_functions_host() -> None:
    function = Function()
    async with invoking(function, host="rollout.rlhfless.example.com") as (invoker, target, _):
        reply = await invoker.invoke(target, "/v1/rollout", b"{}", headers={"authorization": "Bearer t"}, timeout_s=5)
        assert (reply.status, reply.body, reply.headers["x-served-by"]) == (200, b"done", "me")
        reply = await invoker.invoke(target, "/v1/info", b"", headers={}, timeout_s=5)
    (method, path, headers, body), (get, info, _, empty) = function.asked
    assert (method, path, body) == ("POST", "/v1/rollout", b"{}")
    assert headers["host"] == "rollout.rlhfless.example.com"
    assert headers["authorization"] == "Bearer t"
    assert not headers["user-agent"].startswith("kube-probe/")
    assert (get, info, empty) == ("GET", "/v1/info", b"")


@pytest.mark.parametrize("status", [302, 422, 502, 503, 504])
async def test_every_answer_is_an_answer_and_no_redirect_is_followed(status: int) -> None:
    function = Function()
    function.answer = (status, b"why")
    async with invoking(function) as (invoker, target, _):
        reply = await invoker.invoke(target, "/v1/rollout", b"{}", headers={}, timeout_s=5)
    assert (reply.status, reply.body) == (status, b"why")


async def test_an_ingress_that_knows_no_such_host_is_no_answer() -> None:
    function = Function()
    function.answer = (404, b"")
    async with invoking(function, host="rollout.there") as (invoker, target, _):
        with pytest.raises(FunctionUnreachable, match=r"the ingress knows no rollout\.there"):
            await invoker.invoke(target, "/v1/rollout", b"{}", headers={}, timeout_s=5)
    function.answer = (404, b'{"code": "http_404"}')
    async with invoking(function) as (invoker, target, _):
        assert (await invoker.invoke(target, "/v1/other", b"{}", headers={}, timeout_s=5)).status == 404


async def test_silence_and_nobody_are_unreachable() -> None:
    function = Function()
    function.go_on.clear()
    async with invoking(function) as (invoker, target, calls):
        with pytest.raises(FunctionUnreachable, match=r"rollout: no answer within 0\.05 s"):
            await invoker.invoke(target, "/v1/rollout", b"{}", headers={}, timeout_s=0.05)
        nobody = Target(function="reward", url="http://127.0.0.1:1", host="", max_calls=4)
        with pytest.raises(FunctionUnreachable, match="reward: "):
            await invoker.invoke(nobody, "/v1/reward", b"{}", headers={}, timeout_s=5)
        assert (calls.count("rollout"), calls.count("reward")) == (0, 0)


async def test_no_more_calls_at_a_time_than_there_can_be_replicas_for() -> None:
    function = Function()
    function.go_on.clear()
    async with invoking(function, limit=2) as (invoker, target, calls):
        sent = [
            asyncio.create_task(invoker.invoke(target, "/v1/rollout", b"{}", headers={}, timeout_s=5)) for _ in range(5)
        ]
        await function.two_run.wait()
        assert calls.sent_at("rollout") == (5.0, 5.0)
        function.go_on.set()
        assert [reply.status for reply in await asyncio.gather(*sent)] == [200] * 5
        assert function.most_running == 2
        assert calls.count("rollout") == 0


def test_a_limit_comes_from_the_scale() -> None:
    assert max_calls(max_scale=8, container_concurrency=1) == 9
    assert max_calls(max_scale=4, container_concurrency=4) == 17
    assert max_calls(max_scale=0, container_concurrency=1) == UNBOUNDED_CALLS
    assert max_calls(max_scale=4, container_concurrency=0) == UNBOUNDED_CALLS
