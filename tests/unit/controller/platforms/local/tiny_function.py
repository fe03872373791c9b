"""A function for tests: small, starts fast, and does what the query says. Run as ``python -m``, like a real one.

GET/POST any path: JSON with the instance, the path and the body's length.
``?sleep=S``      answers after S seconds (and says on its log when the caller left before)
``?stream=N``     N lines, 50 ms apart
``?env=NAME``     the value of an environment variable
``?die=now``      SIGKILL to itself
``?child=S``      starts a process that sleeps for S seconds
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import uvicorn

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_children: list[subprocess.Popen[bytes]] = []


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    query = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if "die" in query:
        os.kill(os.getpid(), signal.SIGKILL)
    if "child" in query:
        _children.append(subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({query['child']})"]))
    if "sleep" in query and not await _sleep(float(query["sleep"]), receive):
        print("caller left", flush=True)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-tiny", b"yes")]})
    for line in range(int(query.get("stream", "0"))):
        await send({"type": "http.response.body", "body": f"line {line}\n".encode(), "more_body": True})
        await asyncio.sleep(0.05)
    answer = {
        "instance": os.environ["HOSTNAME"],
        "pid": os.getpid(),
        "method": scope["method"],
        "path": scope["path"],
        "headers": {name.decode(): value.decode() for name, value in scope["headers"]},
        "num_body_bytes": len(body),
        "value": os.environ.get(query.get("env", "")),
        "children": [child.pid for child in _children],
    }
    await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


async def _sleep(duration_s: float, receive: Receive) -> bool:
    """Sleep; False where the caller left before the end."""
    left = asyncio.create_task(receive())
    done, _ = await asyncio.wait([left], timeout=duration_s)
    left.cancel()
    return not done


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await asyncio.sleep(float(os.environ.get("TINY_STARTUP_S", "0")))
            if "TINY_CRASH" in os.environ:
                os._exit(3)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning", access_log=False)
