"""Objects with versions and a history, as etcd keeps them for an API server."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Kind = tuple[str, str]
"""Group and plural."""


class VersionConflict(Exception):
    """The object has another version than the writer thinks."""


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the history."""

    version: int
    type: str
    kind: Kind
    object: Object


class ObjectStore:
    """One namespace."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 100
        """Changes before this version are forgotten."""
        self.history: list[Change] = []
        self._objects: dict[tuple[Kind, str], Object] = {}
        self._changed = asyncio.Event()

    def get(self, kind: Kind, name: str) -> Object | None:
        """A copy of the object."""
        return copy.deepcopy(self._objects.get((kind, name)))

    def all(self, kind: Kind) -> list[Object]:
        """Copies of all objects of a kind, by name."""
        return [copy.deepcopy(found) for (one, _), found in sorted(self._objects.items()) if one == kind]

    def put(self, kind: Kind, value: Object, *, expected: str | None = None) -> Object:
        """Add or replace an object; nothing happens where it is the same. Raises ``VersionConflict``."""
        name = value["metadata"]["name"]
        known = self._objects.get((kind, name))
        if expected is not None and known is not None and known["metadata"]["resourceVersion"] != expected:
            raise VersionConflict(f"the object has been modified; it is at {known['metadata']['resourceVersion']}")
        stored = copy.deepcopy(value)
        metadata = stored["metadata"]
        metadata.setdefault("uid", f"uid-{self.version + 1}" if known is None else known["metadata"]["uid"])
        metadata["resourceVersion"] = known["metadata"]["resourceVersion"] if known else ""
        if known == stored:
            return copy.deepcopy(known)
        metadata["resourceVersion"] = str(self._next())
        self._objects[kind, name] = stored
        self._note("MODIFIED" if known else "ADDED", kind, stored)
        return copy.deepcopy(stored)

    def delete(self, kind: Kind, name: str) -> None:
        """Take an object away."""
        gone = self._objects.pop((kind, name))
        gone["metadata"]["resourceVersion"] = str(self._next())
        self._note("DELETED", kind, gone)

    def forget(self) -> None:
        """Compact: no watch can go on from before now."""
        self.history.clear()
        self.oldest = self.version

    def since(self, kind: Kind, version: int) -> Sequence[Change]:
        """Changes after a version."""
        return [change for change in self.history if change.version > version and change.kind == kind]

    async def wait(self, version: int) -> None:
        """Return when something has changed since a version."""
        while self.version <= version:
            await self._changed.wait()

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _note(self, type: str, kind: Kind, value: Object) -> None:
        self.history.append(Change(self.version, type, kind, copy.deepcopy(value)))
        self._changed.set()
        self._changed = asyncio.Event()
