"""From an HTTP request to a typed call, or to a refusal that names what is wrong with it."""

import math
from collections.abc import Iterator
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from shared.contracts.call import StageCall
from shared.contracts.errors import Cancelled, InvalidInput
from shared.contracts.stage import Stage
from shared.service.errors import invalid_body

MAX_CALL_BYTES = 16 * 2**20
"""A call holds references and row uids, never tensors or texts."""


async def read_call(request: Request, stage: Stage, call_type: type[StageCall[Any]]) -> StageCall[Any]:
    """The request's call. Raises ``InvalidInput``, and ``Cancelled`` if the caller left before its end."""
    body = await read_body(request)
    try:
        call = call_type.model_validate_json(body)
    except ValidationError as error:
        raise invalid_body(error) from error
    if call.key.stage is not stage:
        raise InvalidInput(f"key.stage: this route serves {stage}, not {call.key.stage}")
    # JSON has no such numbers, yet parsers take NaN, Infinity and 1e999: a deadline of NaN would never come.
    unbounded = next(_non_finite(call, ""), None)
    if unbounded is not None:
        raise InvalidInput(f"{unbounded}: Input should be a finite number")
    return call


async def read_body(request: Request) -> bytes:
    """The body. One that is too long is read to its end all the same: only then does its sender hear why.

    Raises ``InvalidInput`` for that one, and ``Cancelled`` if the caller left before the end.
    """
    kept, num_bytes = bytearray(), 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes <= MAX_CALL_BYTES:
                kept += chunk
    except ClientDisconnect as error:
        raise Cancelled("the caller left in the middle of its request") from error
    if num_bytes > MAX_CALL_BYTES:
        raise InvalidInput(f"body: {num_bytes} bytes, at most {MAX_CALL_BYTES}: send references, or fewer rows a call")
    return bytes(kept)


def _non_finite(value: object, path: str) -> Iterator[str]:
    """Dotted paths of the numbers that are infinite or not a number."""
    match value:
        case float():
            if not math.isfinite(value):
                yield path
        case BaseModel():
            for name, field in value:
                yield from _non_finite(field, f"{path}.{name}" if path else name)
        case dict():
            for name, entry in value.items():
                yield from _non_finite(entry, f"{path}.{name}")
        case tuple() | list():
            for index, entry in enumerate(value):
                yield from _non_finite(entry, f"{path}.{index}")
