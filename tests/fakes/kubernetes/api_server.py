"""A Kubernetes API server of our own: get, list, watch, merge-patch; RBAC, conflicts, and faults on demand. ASGI."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.fakes.kubernetes.asgi import Message, Receive, Send, body_of, headers_of, respond_json
from tests.fakes.kubernetes.merge_patch import merged
from tests.fakes.kubernetes.object_store import Kind, Object, ObjectStore, VersionConflict

NAMESPACE = "rlhfless"
SERVICES: Kind = ("serving.knative.dev", "services")
REVISIONS: Kind = ("serving.knative.dev", "revisions")
PODS: Kind = ("", "pods")
KINDS = (SERVICES, REVISIONS, PODS)
BOOKMARK_S = 30.0
CLOCK_STEP_S = 0.001
"""A time that is nearer than this is now: what rounding leaves would never pass."""


class AdmissionRefused(Exception):
    """A webhook refuses the object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a request is answered with instead of being handled."""

    status: int
    verb: str = ""
    """Only requests of this verb; any where empty."""
    plural: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    applied: bool = False
    """Whether the request is handled nevertheless: its answer is lost."""

    def meets(self, verb: str, plural: str) -> bool:
        """Whether this request is to be answered so."""
        return self.verb in ("", verb) and self.plural in ("", plural)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    verb: str
    plural: str
    name: str
    body: Any = None


class ApiServer:
    """One namespace's objects. ``admit`` is asked before a change, ``committed`` is told after it."""

    def __init__(self, *, token: str | None = None) -> None:
        self.store = ObjectStore()
        self.token = token
        self.forbidden: set[tuple[str, str]] = set()
        """Verb and plural that the account may not do."""
        self.faults: list[Fault] = []
        """Taken by the next requests that they meet, in order."""
        self.refused = asyncio.Event()
        """Something was forbidden."""
        self.watching = asyncio.Event()
        """Somebody watches."""
        self.asked: list[Asked] = []
        """Every request that was handled, refused or not."""
        self.admit: Callable[[Kind, Object, Object], None] = lambda kind, old, new: None
        self.committed: Callable[[Kind, Object, Object], None] = lambda kind, old, new: None
        self.deleted: Callable[[Kind, str], None] = lambda kind, name: None
        self.on_patch: Callable[[Kind, str], None] = lambda kind, name: None
        """Called before a patch is applied: somebody else may be quicker."""
        self._broken = asyncio.Event()

    def patches(self, plural: str) -> list[Asked]:
        """The patches of one kind, in order."""
        return [asked for asked in self.asked if asked.verb == "patch" and asked.plural == plural]

    def break_watches(self) -> None:
        """Cut every watch that goes on."""
        self._broken.set()
        self._broken = asyncio.Event()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        body = await body_of(receive)
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        found = _route(scope["path"])
        if found is None:
            return await _refuse(send, 404, f"no such path: {scope['path']}")
        kind, name = found
        verb = _verb(scope["method"], name, query)
        content = json.loads(body) if body else None
        self.asked.append(Asked(verb, kind[1], name, content))
        if self.token is not None and headers_of(scope).get("authorization") != f"Bearer {self.token}":
            return await _refuse(send, 401, "Unauthorized")
        if (verb, kind[1]) in self.forbidden:
            self.refused.set()
            return await _refuse(send, 403, f"{kind[1]} is forbidden: User cannot {verb} resource")
        fault = next((fault for fault in self.faults if fault.meets(verb, kind[1])), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.applied:
                self._patch(kind, name, content)
            return await _refuse(send, fault.status, "injected", fault.headers)
        await self._handle(verb, kind, name, query, content, receive, send)

    async def _handle(
        self, verb: str, kind: Kind, name: str, query: Mapping[str, str], content: Any, receive: Receive, send: Send
    ) -> None:
        selector = query.get("labelSelector", "")
        match verb:
            case "list":
                items = [each for each in self.store.all(kind) if _selected(each, selector)]
                await respond_json(
                    send, 200, {"metadata": {"resourceVersion": str(self.store.version)}, "items": items}
                )
            case "get":
                found = self.store.get(kind, name)
                await (_refuse(send, 404, f"{name} not found") if found is None else respond_json(send, 200, found))
            case "patch":
                try:
                    await respond_json(send, 200, self._patch(kind, name, content))
                except KeyError:
                    await _refuse(send, 404, f"{kind[1]} {name!r} not found")
                except VersionConflict as error:
                    await _refuse(send, 409, str(error))
                except AdmissionRefused as error:
                    await _refuse(send, 422, f"admission webhook denied the request: {error}")
            case "delete":
                if self.store.get(kind, name) is None:
                    return await _refuse(send, 404, f"{kind[1]} {name!r} not found")
                self.store.delete(kind, name)
                self.deleted(kind, name)
                await respond_json(send, 200, {"kind": "Status", "status": "Success"})
            case "watch":
                await self._watch(kind, query, receive, send)
            case _:
                await _refuse(send, 405, f"{verb} is not supported")

    def _patch(self, kind: Kind, name: str, patch: Any) -> Object:
        self.on_patch(kind, name)
        known = self.store.get(kind, name)
        if known is None:
            raise KeyError(name)
        new = merged(known, patch)
        if known.get("spec") != new.get("spec"):
            new["metadata"]["generation"] = known["metadata"].get("generation", 0) + 1
        self.admit(kind, known, new)
        stored = self.store.put(kind, new, expected=patch.get("metadata", {}).get("resourceVersion"))
        self.committed(kind, known, stored)
        return stored

    async def _watch(self, kind: Kind, query: Mapping[str, str], receive: Receive, send: Send) -> None:
        version, selector = int(query["resourceVersion"]), query.get("labelSelector", "")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        if version < self.store.oldest:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            await send({"type": "http.response.body", "body": _line("ERROR", status)})
            return
        self.watching.set()
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + float(query["timeoutSeconds"])
        broken, gone = asyncio.create_task(self._broken.wait()), asyncio.create_task(_gone(receive))
        try:
            while ends_at - loop.time() > CLOCK_STEP_S and not broken.done() and not gone.done():
                looked_at = self.store.version
                for change in self.store.since(kind, version):
                    version = change.version
                    if _selected(change.object, selector):
                        event = _line(change.type, change.object)
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                changing = asyncio.create_task(self.store.wait(looked_at))
                done, _ = await asyncio.wait(
                    {changing, broken, gone},
                    timeout=min(BOOKMARK_S, ends_at - loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                changing.cancel()
                if not done:
                    version = looked_at
                    bookmark = _line("BOOKMARK", {"metadata": {"name": "", "resourceVersion": str(version)}})
                    await send({"type": "http.response.body", "body": bookmark, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            broken.cancel()
            gone.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _route(path: str) -> tuple[Kind, str] | None:
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(rest) not in (3, 4) or rest[:2] != ["namespaces", NAMESPACE]:
        return None
    kind = (group, rest[2])
    return (kind, rest[3] if len(rest) == 4 else "") if kind in KINDS else None


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method == "GET":
        return "get" if name else ("watch" if query.get("watch") == "1" else "list")
    return {"PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}[method]


def _selected(value: Object, selector: str) -> bool:
    labels = value["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        key, equals, wanted = part.partition("=")
        if key not in labels or (equals and labels[key] != wanted):
            return False
    return True


def _line(type: str, value: Object) -> bytes:
    return json.dumps({"type": type, "object": value}).encode() + b"\n"


async def _refuse(send: Send, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
    await respond_json(send, status, {"kind": "Status", "code": status, "message": message}, headers)
