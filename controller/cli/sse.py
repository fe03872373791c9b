"""Server-sent events, from lines of text."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event of a run. ``id`` is where a reader resumes."""

    id: str
    kind: str
    data: dict[str, Any]


async def server_events(lines: AsyncIterator[str]) -> AsyncIterator[ServerEvent | None]:
    """The events of a stream; ``None`` for a comment, which is a sign of life.

    An event that the connection's end cut in two is left out: it comes again to a reader that resumes.
    """
    fields: dict[str, str] = {}
    async for line in lines:
        name, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if "data" in fields:
                data = json.loads(fields["data"])
                yield ServerEvent(id=fields.get("id", ""), kind=fields.get("event", "message"), data=data)
            fields = {}
        elif not name and colon:
            yield None
        elif name == "data" and "data" in fields:
            fields["data"] += f"\n{value}"
        else:
            fields[name] = value
