"""Whether a replica takes requests: the manifest's readiness probe."""

import asyncio

from controller.platforms.local.http_origin import HttpOrigin
from controller.platforms.local.http_stream import BrokenStream

_PROBE_TIMEOUT_S = 1.0
_HEADERS = {"host": "127.0.0.1", "user-agent": "kube-probe/local"}


async def is_ready(origin: HttpOrigin, path: str | None) -> bool:
    """GET the path and look for a status from 200 to 399; without a path, see whether the port is open."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            if path is None:
                origin.give_back(await origin.connect())
                return True
            answer = await origin.fetch("GET", path, headers=_HEADERS)
    except (OSError, BrokenStream):  # OSError includes TimeoutError
        return False
    return 200 <= answer.status < 400
