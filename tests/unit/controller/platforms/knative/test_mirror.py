"""A mirror of objects against a real HTTP server: it follows, across broken watches and forgotten versions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.platforms.knative import mirror as mirror_module
from controller.platforms.knative.access import KubeAccess
from controller.platforms.knative.credentials import NoToken
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import NotPermitted
from controller.platforms.knative.kube_resources import PODS
from controller.platforms.knative.mirror import Mirror
from tests.fakes.kubernetes import api_server
from tests.fakes.kubernetes.api_server import NAMESPACE, ApiServer, Fault
from tests.fakes.kubernetes.asgi import served

KIND = api_server.PODS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of some thousandths."""
    for name in ("PAUSE_S", "NOT_PERMITTED_PAUSE_S", "LONGEST_PAUSE_S"):
        monkeypatch.setattr(mirror_module, name, 0.005)


class Seen:
    """What a mirror has told, and a way to wait for it."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.gone: list[tuple[str, bool]] = []
        self._told = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_change(self, found: Any) -> None:
        self.changed.append(found["metadata"]["name"])
        self._tell()

    def on_gone(self, found: Any, seen: bool) -> None:
        self.gone.append((found["metadata"]["name"], seen))
        self._tell()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30), self._told:
            await self._told.wait_for(holds)

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._told:
                self._told.notify_all()

        self._tasks.add(asyncio.create_task(tell()))


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


@asynccontextmanager
async def mirrored(api: ApiServer) -> AsyncIterator[tuple[Mirror, Seen]]:
    async with served(api) as address:
        access = KubeAccess(server=f"http://{address}", namespace=NAMESPACE, tls=None, credentials=NoToken())
        async with KubeClient(access) as client:
            seen = Seen()
            mirror = Mirror(client, PODS, on_change=seen.on_change, on_gone=seen.on_gone)
            try:
                yield mirror, seen
            finally:
                await mirror.stop()


async def test_it_has_what_there_is_and_follows_changes() -> None:
    api = ApiServer()
    api.store.put(KIND, pod("a"))
    async with mirrored(api) as (mirror, seen):
        await mirror.start()
        assert list(mirror.objects) == ["a"]
        api.store.put(KIND, pod("b"))
        api.store.put(KIND, pod("a", spec=1))
        api.store.delete(KIND, "a")
        await seen.until(lambda: bool(seen.gone))
        assert list(mirror.objects) == ["b"]
        assert seen.changed == ["a", "b", "a"]
        assert seen.gone == [("a", True)]


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    api = ApiServer()
    async with mirrored(api) as (mirror, seen):
        await mirror.start()
        await api.watching.wait()
        api.break_watches()
        api.faults = [Fault(status=500, verb="watch"), Fault(status=503, verb="watch")]
        api.store.put(KIND, pod("a"))
        await seen.until(lambda: seen.changed == ["a"])
        assert [asked.verb for asked in api.asked].count("list") == 1


async def test_a_forgotten_version_means_a_new_list_and_inferred_ends() -> None:
    api = ApiServer()
    api.store.put(KIND, pod("a"))
    api.store.put(KIND, pod("b"))
    async with mirrored(api) as (mirror, seen):
        await mirror.start()
        await api.watching.wait()
        # Nobody watches while these happen.
        api.faults = [Fault(status=410, verb="watch")]
        api.break_watches()
        api.store.delete(KIND, "a")
        api.store.put(KIND, pod("c"))
        api.store.forget()
        await seen.until(lambda: "c" in seen.changed)
        assert sorted(mirror.objects) == ["b", "c"]
        assert seen.gone == [("a", False)]
        assert [asked.verb for asked in api.asked].count("list") == 2


async def test_a_list_that_is_not_permitted_is_tried_again_later() -> None:
    api = ApiServer()
    api.forbidden = {("list", "pods")}
    api.store.put(KIND, pod("a"))
    async with mirrored(api) as (mirror, seen):
        with pytest.raises(NotPermitted):
            await mirror.start()
        api.refused.clear()
        mirror.follow()
        await api.refused.wait()
        api.forbidden = set()
        await seen.until(lambda: seen.changed == ["a"])


async def test_an_answer_that_the_watch_has_overtaken_is_old() -> None:
    api = ApiServer()
    api.store.put(KIND, pod("a"))
    async with mirrored(api) as (mirror, seen):
        await mirror.start()
        patched = api.store.put(KIND, pod("a", spec=1))
        api.store.put(KIND, pod("a", spec=1, status=2))
        await seen.until(lambda: mirror.objects["a"].get("status") == 2)
        mirror.take(patched)
        assert mirror.objects["a"]["status"] == 2
        mirror.take({"metadata": {"name": "a", "resourceVersion": "9999"}, "status": 3})
        assert mirror.objects["a"]["status"] == 3


async def test_an_answer_does_not_bring_back_what_is_gone() -> None:
    api = ApiServer()
    api.store.put(KIND, pod("a"))
    async with mirrored(api) as (mirror, seen):
        await mirror.start()
        patched = api.store.put(KIND, pod("a", spec=1))
        api.store.delete(KIND, "a")
        await seen.until(lambda: bool(seen.gone))
        mirror.take(patched)
        assert dict(mirror.objects) == {}
        mirror.take(api.store.put(KIND, pod("b")))
        assert list(mirror.objects) == ["b"]
