"""Views of a safetensors file: what the library writes is read, and nothing else."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import save

from shared.modeling.errors import WeightsMismatch
from shared.modeling.tensor_views import tensor_views

TENSORS = {
    "matrix": torch.arange(6, dtype=torch.float32).view(2, 3),
    "half": torch.arange(5, dtype=torch.float16),
    "brain": torch.arange(3).to(torch.bfloat16),
    "eighth": torch.arange(3).to(torch.float8_e4m3fn),
    "ids": torch.tensor([[-1], [2**40]]),
    "bits": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 4),
}


def blob_of(entries: dict[str, Any], num_bytes: int) -> memoryview:
    header = json.dumps(entries).encode()
    return memoryview(bytearray(len(header).to_bytes(8, "little") + header + bytes(num_bytes)))


def entry(begin: int, end: int, shape: tuple[int, ...], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize("form", [bytes, lambda data: memoryview(bytearray(data))], ids=["bytes", "view"])
def test_what_the_library_writes_is_read(form: Any) -> None:
    views = tensor_views(form(save(TENSORS, metadata={"format": "pt"})))
    assert save(views) == save(TENSORS)
    assert views["scalar"].item() == 2.5


def test_nothing_is_copied_out_of_a_writable_view() -> None:
    data = bytearray(save({"a": torch.zeros(4)}))
    view = tensor_views(memoryview(data))["a"]
    data[-4:] = torch.tensor(7.0).numpy().tobytes()
    assert view.tolist() == [0.0, 0.0, 0.0, 7.0]


def test_bytes_are_never_written_to() -> None:
    data = save({"a": torch.zeros(4)})
    before = bytes(data)
    tensor_views(data)["a"].fill_(1.0)
    assert data == before


def test_a_file_without_tensors_has_none() -> None:
    assert tensor_views(save({})) == {}


@pytest.mark.parametrize(
    ("entries", "num_bytes", "why"),
    [
        ({"a": entry(0, 8, (2,))}, 4, "ends within a"),
        ({"a": entry(0, 8, (2,))}, 9, "1 bytes follow"),
        ({"a": entry(0, 8, (3,))}, 8, "bytes of a"),
        ({"a": entry(4, 12, (2,))}, 12, "bytes of a"),
        ({"a": entry(0, 8, (2,)), "b": entry(4, 12, (2,))}, 12, "bytes of b"),
        ({"a": entry(0, 4, (1,)), "b": entry(8, 12, (1,))}, 12, "bytes of b"),
        ({"a": entry(8, 0, (2,))}, 8, "bytes of a"),
        ({"a": entry(0, 8, (-2,))}, 8, "shape of a"),
        ({"a": entry(0, 8, (True, 2))}, 8, "shape of a"),
        ({"a": entry(0, 8, (2,), "F31")}, 8, "no known dtype"),
        ({"a": entry(0, 8, (2,), ["F32"])}, 8, "no known dtype"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}, 8, "3 offsets"),
        ({"a": {"dtype": "F32", "shape": [2]}}, 8, "offsets of a"),
        ({"a": 7}, 8, "offsets of a"),
        ([], 0, "not an object"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(entries: Any, num_bytes: int, why: str) -> None:
    with pytest.raises(WeightsMismatch, match=why):
        tensor_views(blob_of(entries, num_bytes))


@pytest.mark.parametrize(
    "blob", [b"", b"1234567", b"\xff" * 8, b"not safetensors at all", (2).to_bytes(8, "little") + b"{["]
)
def test_what_is_no_file_is_refused(blob: bytes) -> None:
    with pytest.raises(WeightsMismatch, match="not a readable safetensors file"):
        tensor_views(blob)


def test_a_file_that_was_cut_anywhere_is_refused() -> None:
    blob = save(TENSORS)
    for length in range(len(blob)):
        with pytest.raises(WeightsMismatch):
            tensor_views(blob[:length])
