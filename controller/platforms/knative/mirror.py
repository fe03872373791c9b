"""A copy of the namespace's objects of one kind, kept up by a watch."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError, KubeUnavailable, NotPermitted, WatchExpired
from controller.platforms.knative.kube_resources import KubeObject, Resource, name_of, version_of
from controller.platforms.knative.retrying import LONGEST_PAUSE_S
from shared.service.ending import end_task

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Between a watch that broke off and the next one."""
NOT_PERMITTED_PAUSE_S = 60.0
"""Between two attempts at what the account may not do: somebody may extend its Role."""

OnChange = Callable[[KubeObject], None]
OnGone = Callable[[KubeObject, bool], None]
"""The object as it was last seen, and whether its end was seen: if not, it is missing in a new list."""


class Mirror:
    """The objects by name. What follows them is told of every change."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        selector: str = "",
        on_change: OnChange = lambda found: None,
        on_gone: OnGone = lambda found, seen: None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._selector = selector
        self._on_change = on_change
        self._on_gone = on_gone
        self._objects: dict[str, KubeObject] = {}
        self._version = ""
        self._following: asyncio.Task[None] | None = None

    @property
    def objects(self) -> Mapping[str, KubeObject]:
        """By name, as last seen."""
        return self._objects

    async def start(self) -> None:
        """Read all objects once, then follow them. Raises ``KubeError`` where the first list fails."""
        await self._read_all()
        self.follow()

    def follow(self) -> None:
        """Follow the objects from now on, whether they could be read or not."""
        self._following = asyncio.create_task(self._follow(), name=f"watch {self._resource}")

    async def stop(self) -> None:
        """Follow no longer."""
        if self._following is not None:
            await end_task(self._following)

    def take(self, found: KubeObject) -> None:
        """Note an object that was just read or patched; the watch says the same, a little later or earlier.

        What the watch has passed and shows no more is gone: an answer that is older does not bring it back.
        """
        if name_of(found) in self._objects or _is_newer(version_of(found), than=self._version):
            self._note(found)

    def _note(self, found: KubeObject) -> None:
        known = self._objects.get(name_of(found))
        if known is None or _is_newer(version_of(found), than=version_of(known)):
            self._objects[name_of(found)] = found
            self._on_change(found)

    async def _follow(self) -> None:
        while True:
            try:
                if not self._version:
                    await self._read_all()
                began_at = asyncio.get_running_loop().time()
                await self._watch()
                if asyncio.get_running_loop().time() - began_at >= PAUSE_S:
                    continue
                # A server that ends watches as soon as they begin is not to be asked without a pause.
                pause_s = PAUSE_S
            except WatchExpired:
                self._version = ""
                continue
            except NotPermitted as error:
                log.warning("%s", error)
                pause_s = NOT_PERMITTED_PAUSE_S
            except KubeUnavailable as error:
                log.info("%s", error)
                pause_s = PAUSE_S
            except KubeError as error:
                log.warning("%s", error)
                pause_s, self._version = LONGEST_PAUSE_S, ""
            except Exception:
                # A mirror that stands still would show an old cluster for as long as the controller runs.
                log.exception("the watch of %s failed", self._resource)
                pause_s, self._version = LONGEST_PAUSE_S, ""
            await asyncio.sleep(pause_s)

    async def _read_all(self) -> None:
        listing = await self._client.list(self._resource, selector=self._selector)
        there = {name_of(found): found for found in listing.objects}
        for name in [name for name in self._objects if name not in there]:
            self._on_gone(self._objects.pop(name), False)
        for found in there.values():
            self._note(found)
        self._version = listing.version

    async def _watch(self) -> None:
        async for event in self._client.watch(self._resource, version=self._version, selector=self._selector):
            match event.kind:
                case "ADDED" | "MODIFIED":
                    self._note(event.object)
                case "DELETED":
                    self._objects.pop(name_of(event.object), None)
                    self._on_gone(event.object, True)
            self._version = version_of(event.object)


def _is_newer(version: str, *, than: str) -> bool:
    """Whether a version of an object comes after another. They are counted up; the answer to a patch and the watch come
    by two connections, and the older of the two must not have the last word."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
