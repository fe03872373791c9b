"""A small client of the Kubernetes API: one namespace; get, list, watch, merge-patch and delete."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx

from controller.platforms.knative.access import KubeAccess
from controller.platforms.knative.connections import kept_alive
from controller.platforms.knative.credentials import CredentialsUnreadable
from controller.platforms.knative.kube_errors import (
    Conflict,
    KubeError,
    KubeUnavailable,
    NotAuthenticated,
    NotPermitted,
    ObjectUnknown,
    Rejected,
    WatchExpired,
)
from controller.platforms.knative.kube_resources import KubeObject, Resource, version_of
from controller.platforms.knative.retrying import LATER, MAX_ATTEMPTS, pause_s

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 30.0
WATCH_S = 240
"""How long one watch lasts; the server ends it, and the next one goes on where it ended."""
MAX_EDITS = 8
"""How often an object that others change too is read again before its edit is given up."""
MERGE_PATCH = "application/merge-patch+json"

Patch = Mapping[str, Any]
Edit = Callable[[KubeObject], Patch | None]
"""The merge patch for an object as it was read; None where nothing has to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All objects of one kind at one moment."""

    objects: tuple[KubeObject, ...]
    version: str
    """Where a watch goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One change: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK`` for none."""

    kind: str
    object: KubeObject


class KubeClient:
    """Asks one API server about one namespace. To be used as an async context manager."""

    def __init__(self, access: KubeAccess, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.namespace = access.namespace
        self._access = access
        self._http = httpx.AsyncClient(
            base_url=access.server,
            timeout=ANSWER_TIMEOUT_S,
            transport=transport or kept_alive(verify=access.tls if access.tls is not None else True),
            # A proxy of the environment does not lead to the cluster's own API.
            trust_env=False,
            headers={"user-agent": "rlhfless-controller"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def get(self, resource: Resource, name: str) -> KubeObject:
        """One object. Raises ``ObjectUnknown`` and every other ``KubeError``."""
        return await self._object("get", "GET", resource, name)

    async def list(self, resource: Resource, *, selector: str = "") -> Listing:
        """All objects that have these labels."""
        found = await self._object("list", "GET", resource, "", params={"labelSelector": selector} if selector else {})
        return Listing(objects=tuple(found.get("items") or ()), version=version_of(found))

    async def merge_patch(self, resource: Resource, name: str, patch: Patch) -> KubeObject:
        """Change an object; a null takes a field away. Raises ``Conflict`` where the patch names an older version."""
        content, headers = json.dumps(patch).encode(), {"content-type": MERGE_PATCH}
        return await self._object("patch", "PATCH", resource, name, content=content, headers=headers)

    async def delete(self, resource: Resource, name: str) -> None:
        """Take an object away. Raises ``ObjectUnknown`` where it is not there (any more)."""
        await self._object("delete", "DELETE", resource, name)

    async def edit(self, resource: Resource, name: str, edit: Edit) -> KubeObject:
        """Change an object as it is now, and no other: read, patch, and read again where it was changed meanwhile."""
        for _ in range(MAX_EDITS):
            found = await self.get(resource, name)
            patch = edit(found)
            if patch is None:
                return found
            metadata = {**patch.get("metadata", {}), "resourceVersion": version_of(found)}
            try:
                return await self.merge_patch(resource, name, {**patch, "metadata": metadata})
            except Conflict:
                continue
        raise Conflict(f"{resource} {name} was changed by others {MAX_EDITS} times in a row")

    async def watch(self, resource: Resource, *, version: str, selector: str = "") -> AsyncIterator[WatchEvent]:
        """Changes after a version, until the server ends the watch. Raises ``WatchExpired``: then list again."""
        params = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        params["timeoutSeconds"] = str(WATCH_S)
        if selector:
            params["labelSelector"] = selector
        path = resource.path(self.namespace)
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, read=WATCH_S + ANSWER_TIMEOUT_S)
        try:
            headers = self._access.credentials.headers()
            async with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    raise self._refusal("watch", resource, answer)
                async for line in _lines(answer):
                    yield _watch_event(line)
        except (httpx.HTTPError, CredentialsUnreadable) as error:
            raise KubeUnavailable(f"the watch of {resource} broke off: {_reason(error)}") from error

    async def _object(
        self,
        verb: str,
        method: str,
        resource: Resource,
        name: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> KubeObject:
        """Send, again where that may help, and read the object."""
        path, reason = resource.path(self.namespace, name), ""
        for attempt in range(MAX_ATTEMPTS):
            asked_for: Mapping[str, str] = {}
            try:
                sent = {**self._access.credentials.headers(), **(headers or {})}
                answer = await self._http.request(method, path, params=params, content=content, headers=sent)
            except (httpx.HTTPError, CredentialsUnreadable) as error:
                reason = _reason(error)
            else:
                if answer.status_code not in LATER:
                    if answer.is_success:
                        return dict(answer.json())
                    raise self._refusal(verb, resource, answer)
                asked_for, reason = answer.headers, f"{answer.status_code} {_message(answer)}"
            if attempt + 1 < MAX_ATTEMPTS:
                await asyncio.sleep(pause_s(attempt, asked_for))
        raise KubeUnavailable(f"could not {verb} {resource} {name} in {MAX_ATTEMPTS} attempts: {reason}".strip())

    def _refusal(self, verb: str, resource: Resource, answer: httpx.Response) -> KubeError:
        message = f"{verb} {resource}: {_message(answer)}"
        match answer.status_code:
            case 401:
                return NotAuthenticated(f"{message}: the API server does not accept the controller's token")
            case 403:
                return NotPermitted(verb, str(resource), self.namespace, _message(answer))
            case 404:
                return ObjectUnknown(message)
            case 409:
                return Conflict(message)
            case 410:
                return WatchExpired(message)
            case status if status in LATER:
                return KubeUnavailable(message)
        return Rejected(message)


async def _lines(answer: httpx.Response) -> AsyncIterator[bytes]:
    """What stands between line feeds. A string in an event may hold any other character that ends a line."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in filter(None, whole):
            yield line
    if rest:
        yield rest


def _watch_event(line: bytes) -> WatchEvent:
    try:
        event = json.loads(line)
        kind, found = str(event["type"]), dict(event["object"])
    except (ValueError, KeyError, TypeError):
        # The stream ended in the middle of a line.
        raise KubeUnavailable("the watch broke off in the middle of an event") from None
    if kind != "ERROR":
        return WatchEvent(kind=kind, object=found)
    message = str(found.get("message", "the watch failed"))
    raise WatchExpired(message) if found.get("code") == 410 else KubeUnavailable(message)


def _message(answer: httpx.Response) -> str:
    """What the server's ``Status`` object says, or the beginning of its text."""
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text.strip()[:200]


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
