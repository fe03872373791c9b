"""The smallest function behind uvicorn: its answer's body is the request's, after ``?sleep=SECONDS``.

The answer's headers tell the request's ``x-id`` and the replica's process and port.
"""

import asyncio
import os
from urllib.parse import parse_qs

import uvicorn
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

PORT = int(os.environ.get("PORT", "8080"))


async def application(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """ASGI."""
    if scope["type"] != "http":
        raise TypeError(f"not a request: {scope['type']}")
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        more = message["more_body"]
    query = parse_qs(scope["query_string"])
    if b"sleep" in query:
        await asyncio.sleep(float(query[b"sleep"][0]))
    asked = next((value for name, value in scope["headers"] if name == b"x-id"), b"")
    headers = [
        (b"content-length", b"%d" % len(body)),
        (b"x-id", asked),
        (b"x-pid", b"%d" % os.getpid()),
        (b"x-port", b"%d" % PORT),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})


if __name__ == "__main__":
    uvicorn.run(application, host="127.0.0.1", port=PORT, access_log=False, lifespan="off", log_level="warning")
