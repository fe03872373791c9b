"""Sends calls to functions by plain HTTP, no more at a time than a function can have replicas for."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from controller.platforms.base import FunctionUnreachable, PlatformReply
from controller.platforms.knative.calls import Calls
from controller.platforms.knative.connections import kept_alive

CONNECT_TIMEOUT_S = 10.0
READ_MARGIN_S = 30.0
"""A read waits for longer than the platform's own limit, so that the platform's answer is seen."""
UNBOUNDED_CALLS = 64
"""Calls at a time to a function whose scale has no limit. The activator holds what it cannot place in its memory."""
USER_AGENT = "rlhfless-controller"
"""Never kube-probe/...: Knative answers that itself, and the function does not see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a function is called."""

    function: str
    url: str
    host: str
    """The Host header, by which an ingress finds the function; empty where the URL's own will do."""
    max_calls: int


def max_calls(*, max_scale: int, container_concurrency: int) -> int:
    """Calls that a function may get at a time: what its replicas can take, and one that waits."""
    if not max_scale or not container_concurrency:
        return UNBOUNDED_CALLS
    return max_scale * container_concurrency + 1


class Invoker:
    """Calls functions."""

    def __init__(self, calls: Calls, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._calls = calls
        self._places: dict[str, tuple[int, asyncio.Semaphore]] = {}
        self._http = httpx.AsyncClient(
            transport=transport or kept_alive(num_idle=UNBOUNDED_CALLS),
            trust_env=False,
            follow_redirects=False,
            headers={"user-agent": USER_AGENT},
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def invoke(
        self, target: Target, path: str, body: bytes, *, headers: Mapping[str, str], timeout_s: float
    ) -> PlatformReply:
        """POST the body (GET where it is empty). Raises ``FunctionUnreachable``."""
        name = target.function
        sent = {**headers, **({"host": target.host} if target.host else {})}
        timeout = httpx.Timeout(connect=CONNECT_TIMEOUT_S, read=timeout_s + READ_MARGIN_S, write=timeout_s, pool=None)
        try:
            async with asyncio.timeout(timeout_s), self._place(target):
                with self._calls.counted(name):
                    answer = await self._http.request(
                        "POST" if body else "GET",
                        target.url + path,
                        content=body or None,
                        headers=sent,
                        timeout=timeout,
                    )
        except TimeoutError as error:
            raise FunctionUnreachable(f"{name}: no answer within {timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise FunctionUnreachable(f"{name}: {str(error) or type(error).__name__}") from error
        if answer.status_code == 404 and not answer.content:
            # An ingress that does not know the host (yet): the function itself answers with a body.
            raise FunctionUnreachable(f"{name}: the ingress knows no {target.host or target.url}")
        return PlatformReply(status=answer.status_code, headers=dict(answer.headers), body=answer.content)

    def _place(self, target: Target) -> asyncio.Semaphore:
        known = self._places.get(target.function)
        if known is None or known[0] != target.max_calls:
            known = self._places[target.function] = (target.max_calls, asyncio.Semaphore(target.max_calls))
        return known[1]
