"""KV as bytes and back: every bit, and nothing that is somebody else's."""

import json

import pytest
import torch
from safetensors.torch import load, save

from shared.codec.prefix_kv import DamagedKv, KvTensors, decode_kv, encode_kv
from shared.contracts.prefill import PrefixKvScope

SCOPE = PrefixKvScope(weights_digest="w", tokenizer_fingerprint="t", dtype="float32", layout="l3-k2-d4-float32")
HASHES = ("aa", "bb")


def kv_of(dtype: torch.dtype = torch.float32) -> KvTensors:
    """Slices of something larger, with values that no rounding leaves as they are."""
    torch.manual_seed(0)
    whole = torch.randn(2, 3, 2, 9, 4, dtype=torch.float64).mul(1e-3).exp().to(dtype)
    return KvTensors(HASHES, whole[0, :, :, 2:7], whole[1, :, :, 2:7])


def writable(data: bytes | memoryview) -> memoryview:
    return memoryview(bytearray(data))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_it_comes_back_bit_for_bit(dtype: torch.dtype) -> None:
    kv = kv_of(dtype)
    kv.keys[0, 0, 0, 0] = float("nan")
    kv.values[0, 0, 0, 1] = -0.0
    back = decode_kv(SCOPE, writable(encode_kv(SCOPE, kv)))
    assert (back.block_hashes, back.keys.dtype) == (HASHES, dtype)
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    assert torch.equal(back.keys.view(bits), kv.keys.contiguous().view(bits))
    assert torch.equal(back.values.view(bits), kv.values.contiguous().view(bits))


def test_it_is_a_safetensors_file() -> None:
    data = encode_kv(SCOPE, kv_of())
    tensors = load(bytes(data))
    assert int.from_bytes(data[:8], "little") % 8 == 0
    assert tensors.keys() == {"keys", "values"}
    assert torch.equal(tensors["keys"], kv_of().keys)


def test_reading_copies_nothing() -> None:
    data = writable(encode_kv(SCOPE, kv_of()))
    kv = decode_kv(SCOPE, data)
    kv.keys.zero_()
    assert torch.count_nonzero(decode_kv(SCOPE, data).keys) == 0


@pytest.mark.parametrize("field", PrefixKvScope.model_fields)
def test_kv_of_another_scope_is_refused(field: str) -> None:
    data = encode_kv(SCOPE, kv_of())
    with pytest.raises(DamagedKv, match="another policy"):
        decode_kv(SCOPE.model_copy(update={field: "other"}), writable(data))


def with_header(data: bytes, change: dict[str, object]) -> bytes:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:start]) | change).encode()
    return len(header).to_bytes(8, "little") + header + data[start:]


WHOLE = bytes(encode_kv(SCOPE, kv_of()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 100,
        WHOLE[:40],
        WHOLE[:-1],
        save({"keys": torch.zeros(1, 1, 1, 1), "values": torch.zeros(1, 1, 1, 1)}),
        with_header(WHOLE, {"__metadata__": {"format": "prefix-kv-1"}}),
        with_header(WHOLE, {"__metadata__": []}),
        with_header(WHOLE, {"values": {"dtype": "F32", "shape": [3, 2, 5, 5], "data_offsets": [480, 960]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [120], "data_offsets": [0, 480]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, 5, 4], "data_offsets": [-480, 0]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, 5, 4], "data_offsets": [-8, 472]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, 5, 4], "data_offsets": [0, 4800]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, 5, 4], "data_offsets": [600, 1080]}}),
        with_header(WHOLE, {"keys": {"dtype": "I9", "shape": [3, 2, 5, 4], "data_offsets": [0, 480]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, True, 4], "data_offsets": [0, 96]}}),
        with_header(WHOLE, {"keys": {"dtype": "F32", "shape": [3, 2, 5, 4], "data_offsets": [0, "480"]}}),
        with_header(WHOLE, {"values": {"dtype": "BF16", "shape": [3, 2, 5, 4], "data_offsets": [480, 720]}}),
        with_header(WHOLE, {"keys": "nothing"}),
        with_header(WHOLE, {"more": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
    ],
)
def test_what_is_no_whole_blob_of_kv_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedKv):
        decode_kv(SCOPE, writable(data))
