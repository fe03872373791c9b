"""A safetensors file's tensors as views of its bytes: nothing is copied until somebody uses them.

The library's own reader copies every tensor of a blob once, which for a policy is most of the time of loading it.
Format: eight bytes of header length, a JSON header, then the tensors without gaps
(https://github.com/huggingface/safetensors#format).
"""

import json
import math
from typing import Any

import torch
from torch import Tensor

from shared.modeling.errors import WeightsMismatch

_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_LENGTH_BYTES = 8
_METADATA = "__metadata__"


def tensor_views(blob: bytes | memoryview) -> dict[str, Tensor]:
    """The tensors by name. They live in the blob's memory, to be read only; read-only bytes are copied once, whole.

    Raises WeightsMismatch for what is not a whole safetensors file: every byte must belong to exactly one tensor.
    """
    data = memoryview(blob)
    if data.readonly:
        # torch has no read-only tensors, and warns where it is given read-only memory.
        data = memoryview(bytearray(data))
    start, entries = _header(data)
    views, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: _offsets(*item)):
        dtype, shape, (begin, stop) = _dtype(name, entry), _shape(name, entry), _offsets(name, entry)
        num_elements = math.prod(shape)
        if begin != end or stop - begin != num_elements * dtype.itemsize:
            raise _damaged(f"the bytes of {name} are not where its shape and its neighbours put them")
        end = stop
        if start + end > len(data):
            raise _damaged(f"it ends within {name}")
        views[name] = (
            torch.frombuffer(data, dtype=dtype, count=num_elements, offset=start + begin).view(shape)
            if num_elements
            else torch.empty(shape, dtype=dtype)
        )
    if start + end != len(data):
        raise _damaged(f"{len(data) - start - end} bytes follow its last tensor")
    return views


def _header(data: memoryview) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and what the header says of each."""
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if len(data) < _LENGTH_BYTES or len(data) < start:
        raise _damaged("it ends within its header")
    try:
        header = json.loads(bytes(data[_LENGTH_BYTES:start]))
    except (ValueError, RecursionError) as error:
        raise _damaged("its header is not JSON") from error
    if not isinstance(header, dict):
        raise _damaged("its header is not an object")
    header.pop(_METADATA, None)
    return start, header


def _dtype(name: str, entry: dict[str, Any]) -> torch.dtype:
    try:
        return _DTYPES[entry["dtype"]]
    except (KeyError, TypeError) as error:
        raise _damaged(f"{name} has no known dtype") from error


def _shape(name: str, entry: dict[str, Any]) -> tuple[int, ...]:
    return _natural_numbers(name, entry.get("shape"), "shape")


def _offsets(name: str, entry: Any) -> tuple[int, int]:
    offsets = _natural_numbers(name, entry.get("data_offsets") if isinstance(entry, dict) else None, "offsets")
    if len(offsets) != 2:
        raise _damaged(f"{name} has {len(offsets)} offsets, not two")
    return offsets[0], offsets[1]


def _natural_numbers(name: str, numbers: object, what: str) -> tuple[int, ...]:
    if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
        raise _damaged(f"the {what} of {name} are not natural numbers")
    return tuple(numbers)


def _damaged(why: str) -> WeightsMismatch:
    return WeightsMismatch(f"The weights blob is not a readable safetensors file: {why}.")
