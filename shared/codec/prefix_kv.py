"""prefill, rollout → rollout: keys and values of consecutive token blocks as one safetensors blob, bit for bit.

Tensors ``keys`` and ``values``, both ``[L, K, T, D]``: layers, key-value heads, tokens, head size. The metadata repeat
what the KV is valid for and which blocks it is of, so that a handle which leads to another blob is found out.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shared.codec.safetensors_header import HEADER_LENGTH_BYTES, METADATA, NOT_OURS
from shared.contracts.prefill import PrefixKvScope

FORMAT = "prefix-kv-1"
ALIGNMENT = 8
"""Of the first tensor, in bytes; headers end with spaces up to it."""
_DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class DamagedKv(ValueError):
    """The bytes are not the KV that they were taken for."""


@dataclass(frozen=True, slots=True, eq=False)
class KvTensors:
    """Keys and values `[L, K, T, D]` of the blocks with these hashes."""

    block_hashes: tuple[str, ...]
    keys: Tensor
    values: Tensor


def encode_kv(scope: PrefixKvScope, kv: KvTensors) -> memoryview:
    """The blob. Tensors may be slices, and of any device: each is copied once, to its place."""
    tensors = {"keys": kv.keys, "values": kv.values}
    header: dict[str, Any] = {
        METADATA: {"format": FORMAT, "scope": _scope_text(scope), "blocks": " ".join(kv.block_hashes)}
    }
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    start = HEADER_LENGTH_BYTES + len(text)
    data = memoryview(bytearray(start + end))
    data[:HEADER_LENGTH_BYTES] = len(text).to_bytes(HEADER_LENGTH_BYTES, "little")
    data[HEADER_LENGTH_BYTES:start] = text
    for name, tensor in tensors.items():
        _view(data, start, header[name]).copy_(tensor)
    return data


def decode_kv(scope: PrefixKvScope, data: memoryview) -> KvTensors:
    """The tensors, as views of the bytes, which stay the caller's to keep and must be writable.

    Raises ``DamagedKv`` for KV of another scope, and for what is not a whole blob of this kind.
    """
    try:
        start = HEADER_LENGTH_BYTES + int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
        header: dict[str, Any] = json.loads(bytes(data[HEADER_LENGTH_BYTES:start]))
        metadata: dict[str, str] = header.pop(METADATA)
        if (metadata["format"], metadata["scope"]) != (FORMAT, _scope_text(scope)):
            raise DamagedKv("it is of another policy, tokenizer, precision or layout")
        if header.keys() != {"keys", "values"} or _kind(header["keys"]) != _kind(header["values"]):
            raise DamagedKv("it does not hold keys and values of one shape and dtype")
        keys, values = (_view(data, start, header[name]) for name in ("keys", "values"))
        return KvTensors(tuple(metadata["blocks"].split()), keys, values)
    except DamagedKv:
        raise
    except NOT_OURS as error:
        raise DamagedKv("it is no safetensors blob of keys and values") from error


def _view(data: memoryview, start: int, entry: dict[str, Any]) -> Tensor:
    """One tensor `[L, K, T, D]`."""
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], _shape(entry["shape"]), entry["data_offsets"]
    num_elements = math.prod(shape)
    if end - begin != num_elements * dtype.itemsize or not 0 <= begin < end <= len(data) - start:
        raise DamagedKv("its tensors are not where its header puts them")
    return torch.frombuffer(data, dtype=dtype, count=num_elements, offset=start + begin).view(shape)


def _kind(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry["dtype"], entry["shape"]


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    if len(shape) != 4 or not all(type(size) is int and size > 0 for size in shape):
        raise DamagedKv("its tensors have another number of dimensions")
    return tuple(shape)


def _scope_text(scope: PrefixKvScope) -> str:
    return scope.model_dump_json()
