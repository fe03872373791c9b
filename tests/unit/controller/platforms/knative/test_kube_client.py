"""The client against a real HTTP server that behaves like the Kubernetes API."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.platforms.knative import kube_client, retrying
from controller.platforms.knative.access import KubeAccess
from controller.platforms.knative.credentials import NoToken, TokenFile
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import (
    Conflict,
    KubeUnavailable,
    NotAuthenticated,
    NotPermitted,
    ObjectUnknown,
    Rejected,
    WatchExpired,
)
from controller.platforms.knative.kube_resources import PODS, REVISIONS, SERVICES
from tests.fakes.kubernetes import api_server
from tests.fakes.kubernetes.api_server import NAMESPACE, AdmissionRefused, ApiServer, Fault
from tests.fakes.kubernetes.asgi import AsgiTransport, served


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses of a thousandth."""
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def api() -> ApiServer:
    server = ApiServer()
    for name in ("rollout", "learner"):
        server.store.put(api_server.SERVICES, {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"a": 1}})
    return server


@asynccontextmanager
async def client_of(api: ApiServer, credentials: Any = None) -> AsyncIterator[KubeClient]:
    async with served(api) as address:
        access = KubeAccess(
            server=f"http://{address}", namespace=NAMESPACE, tls=None, credentials=credentials or NoToken()
        )
        async with KubeClient(access) as client:
            yield client


async def test_objects_are_read_by_name_and_by_label(api: ApiServer) -> None:
    async with client_of(api) as client:
        assert (await client.get(SERVICES, "rollout"))["spec"] == {"a": 1}
        listing = await client.list(SERVICES, selector="app=learner")
        assert [found["metadata"]["name"] for found in listing.objects] == ["learner"]
        assert listing.version == str(api.store.version)
        assert (await client.list(PODS)).objects == ()
        with pytest.raises(ObjectUnknown, match="nothing not found"):
            await client.get(SERVICES, "nothing")


async def test_a_merge_patch_changes_adds_and_takes_away(api: ApiServer) -> None:
    async with client_of(api) as client:
        patched = await client.merge_patch(SERVICES, "rollout", {"spec": {"a": None, "b": {"c": [1]}}})
        assert patched["spec"] == {"b": {"c": [1]}}
        with pytest.raises(ObjectUnknown):
            await client.merge_patch(SERVICES, "nothing", {})


async def test_an_edit_reads_again_where_others_were_quicker(api: ApiServer) -> None:
    others = 2

    def interfere(kind: tuple[str, str], name: str) -> None:
        nonlocal others
        if others:
            others -= 1
            found = api.store.get(kind, name)
            assert found is not None
            api.store.put(kind, {**found, "spec": {"a": found["spec"]["a"] + 10}})

    api.on_patch = interfere
    async with client_of(api) as client:
        edited = await client.edit(SERVICES, "rollout", lambda found: {"spec": {"a": found["spec"]["a"] + 1}})
        assert edited["spec"] == {"a": 22}
        assert len(api.patches("services")) == 3
        assert (await client.edit(SERVICES, "rollout", lambda found: None))["spec"] == {"a": 22}
        assert len(api.patches("services")) == 3
        others = 100
        with pytest.raises(Conflict, match="changed by others 8 times"):
            await client.edit(SERVICES, "rollout", lambda found: {"spec": {"b": 1}})


async def test_an_edit_whose_answer_was_lost_is_made_once(api: ApiServer) -> None:
    api.faults = [Fault(status=500, verb="patch", applied=True)]
    async with client_of(api) as client:
        edited = await client.edit(
            SERVICES, "rollout", lambda found: None if "done" in found["spec"] else {"spec": {"done": 1}}
        )
    assert edited["spec"] == {"a": 1, "done": 1}


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_what_passes_is_asked_again(api: ApiServer, status: int) -> None:
    api.faults = [Fault(status=status), Fault(status=status)]
    async with client_of(api) as client:
        assert (await client.get(SERVICES, "rollout"))["metadata"]["name"] == "rollout"
    assert len(api.asked) == 3


async def test_what_does_not_pass_ends_with_its_reason(api: ApiServer) -> None:
    api.faults = [Fault(status=503)] * retrying.MAX_ATTEMPTS
    async with client_of(api) as client:
        with pytest.raises(KubeUnavailable, match=r"could not get services.serving.knative.dev rollout in 6 .*503"):
            await client.get(SERVICES, "rollout")
    assert len(api.asked) == retrying.MAX_ATTEMPTS


async def test_the_server_says_how_long_to_wait(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []

    async def sleep(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(kube_client.asyncio, "sleep", sleep)
    api.faults = [Fault(status=429, headers={"retry-after": "7"})]
    # Asked in this process: a server that sleeps would be met as well.
    access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=NoToken())
    async with KubeClient(access, transport=AsgiTransport(api)) as client:
        await client.get(SERVICES, "rollout")
    assert pauses == [7.0]


async def test_nobody_there_is_named() -> None:
    access = KubeAccess(server="http://127.0.0.1:1", namespace=NAMESPACE, tls=None, credentials=NoToken())
    async with KubeClient(access) as client:
        with pytest.raises(KubeUnavailable, match="could not list pods"):
            await client.list(PODS)


async def test_what_the_account_may_not_do_names_verb_and_resource(api: ApiServer) -> None:
    api.forbidden = {("patch", "revisions"), ("watch", "pods")}
    async with client_of(api) as client:
        with pytest.raises(NotPermitted, match=r"may not patch revisions.serving.knative.dev in namespace rlhfless"):
            await client.merge_patch(REVISIONS, "rollout-00001", {})
        with pytest.raises(NotPermitted, match="may not watch pods"):
            await anext(client.watch(PODS, version="100"))
    assert len(api.patches("revisions")) == 1, "asking again does not help"


async def test_a_webhooks_refusal_says_why(api: ApiServer) -> None:
    def refuse(*_: object) -> None:
        raise AdmissionRefused("timeoutSeconds 900 is more than 600")

    api.admit = refuse
    async with client_of(api) as client:
        with pytest.raises(Rejected, match="timeoutSeconds 900"):
            await client.merge_patch(SERVICES, "rollout", {"spec": {}})


async def test_a_token_is_read_again_when_its_file_changes(api: ApiServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first-token\n")
    async with client_of(api, TokenFile(file)) as client:
        api.token = "first-token"
        await client.get(SERVICES, "rollout")
        api.token = "second-token"
        with pytest.raises(NotAuthenticated) as refused:
            await client.get(SERVICES, "rollout")
        assert "first-token" not in str(refused.value)
        file.write_text("second-token\n")
        await client.get(SERVICES, "rollout")
        file.unlink()
        with pytest.raises(KubeUnavailable, match=r"token file .* cannot be read"):
            await client.get(SERVICES, "rollout")


async def test_a_watch_tells_of_changes_from_a_version_on(api: ApiServer) -> None:
    async with client_of(api) as client:
        listing = await client.list(SERVICES)
        await client.merge_patch(SERVICES, "learner", {"spec": {"b": 1}})
        events = client.watch(SERVICES, version=listing.version, selector="app=learner")
        assert (await anext(events)).object["spec"] == {"a": 1, "b": 1}
        coming = asyncio.ensure_future(anext(events))
        await client.merge_patch(SERVICES, "rollout", {"spec": {"b": 1}})
        api.store.delete(api_server.SERVICES, "learner")
        event = await coming
        assert (event.kind, event.object["metadata"]["name"]) == ("DELETED", "learner")
        await events.aclose()


async def test_a_watch_from_a_forgotten_version_has_expired(api: ApiServer) -> None:
    async with client_of(api) as client:
        listing = await client.list(SERVICES)
        await client.merge_patch(SERVICES, "learner", {"spec": {"b": 1}})
        api.store.forget()
        with pytest.raises(WatchExpired):
            await anext(client.watch(SERVICES, version=listing.version))


async def test_a_watch_that_the_server_ends_just_ends(api: ApiServer) -> None:
    async with client_of(api) as client:
        listing = await client.list(SERVICES)
        events = client.watch(SERVICES, version=listing.version)
        coming = asyncio.ensure_future(anext(events, None))
        await api.watching.wait()
        api.break_watches()
        assert await coming is None


async def test_a_watch_is_cut_at_line_feeds_alone() -> None:
    said = ("an odd\x85line", "another\u2028one")
    events = [{"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "1"}, "said": text}} for text in said]
    content = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode()
    cut = [content[:40], content[40:130], content[130:]]

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in cut:
            yield chunk

    access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=NoToken())
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=chunks()))
    async with KubeClient(access, transport=transport) as client:
        seen = [event.object["said"] async for event in client.watch(PODS, version="0")]
    assert seen == list(said)
