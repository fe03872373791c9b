"""A LoRA adapter as one safetensors blob, and merged into the weights that it was trained on. numpy only.

Tensor names are peft's, so the blob is a valid `adapter_model.safetensors` beside the `adapter_config.json` that
`peft_config` gives. Equal adapters are equal bytes.

Shapes: r rank; A `[r, in]`, B `[out, r]`, W `[out, in]`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shared.codec.bfloat16 import from_bfloat16, to_bfloat16
from shared.codec.safetensors_header import HEADER_LENGTH_BYTES, METADATA, NOT_OURS, metadata_of

Matrix = NDArray[np.float32]

FACTS = "lora"
"""The one entry of the metadata; the library writes several in any order."""
PREFIX = "base_model.model."
SUFFIX_A, SUFFIX_B = ".lora_A.weight", ".lora_B.weight"


class DamagedAdapter(Exception):
    """The bytes are no adapter, or not one of these weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraAdapter:
    """What is added to a model's linear layers. Raises ``DamagedAdapter`` when the shapes do not fit each other."""

    rank: int
    alpha: float
    matrices: Mapping[str, tuple[Matrix, Matrix]]
    """(A, B) by the name of the layer, such as ``model.layers.0.self_attn.q_proj``."""

    def __post_init__(self) -> None:
        if not self.matrices or self.rank < 1:
            raise DamagedAdapter("it adapts nothing")
        for name, (a, b) in self.matrices.items():
            if a.ndim != 2 or b.ndim != 2 or (a.shape[0], b.shape[1]) != (self.rank, self.rank):
                raise DamagedAdapter(f"{name} has matrices {a.shape} and {b.shape}, which are not of rank {self.rank}")

    @property
    def scale(self) -> float:
        """α/r"""
        return self.alpha / self.rank


def encode_adapter(adapter: LoraAdapter) -> bytes:
    """The adapter as bytes."""
    tensors: dict[str, NDArray[Any]] = {}
    for name, (a, b) in adapter.matrices.items():
        tensors[f"{PREFIX}{name}{SUFFIX_A}"] = np.ascontiguousarray(a, dtype=np.float32)
        tensors[f"{PREFIX}{name}{SUFFIX_B}"] = np.ascontiguousarray(b, dtype=np.float32)
    return save(tensors, metadata={FACTS: json.dumps({"alpha": adapter.alpha, "rank": adapter.rank})})


def decode_adapter(data: bytes) -> LoraAdapter:
    """Inverse of ``encode_adapter``. Raises ``DamagedAdapter``."""
    try:
        facts = json.loads(metadata_of(data)[FACTS])
        tensors = load(data)
        names = [name[len(PREFIX) : -len(SUFFIX_A)] for name in tensors if name.endswith(SUFFIX_A)]
        matrices = {
            name: (tensors.pop(f"{PREFIX}{name}{SUFFIX_A}"), tensors.pop(f"{PREFIX}{name}{SUFFIX_B}"))
            for name in sorted(names)
        }
        rank, alpha = int(facts["rank"]), float(facts["alpha"])
    except (SafetensorError, *NOT_OURS) as error:
        raise DamagedAdapter(f"the blob is no LoRA adapter: {error}") from error
    if tensors:
        raise DamagedAdapter(f"the blob holds {min(tensors)}, which is no part of a LoRA adapter")
    return LoraAdapter(rank=rank, alpha=alpha, matrices=matrices)


def merge_adapter(weights: bytes, adapter: LoraAdapter) -> bytearray:
    """The weights blob with W + (α/r)·B·A, computed in float32, in place of each adapted W.

    Names, dtypes and order stay as they are. Raises ``DamagedAdapter`` where a layer is not in the weights.
    """
    merged = bytearray(weights)
    start = HEADER_LENGTH_BYTES + int.from_bytes(weights[:HEADER_LENGTH_BYTES], "little")
    entries = json.loads(weights[HEADER_LENGTH_BYTES:start])
    entries.pop(METADATA, None)
    for name, (a, b) in adapter.matrices.items():
        entry = entries.get(f"{name}.weight")
        if entry is None or tuple(entry["shape"]) != (b.shape[0], a.shape[1]):
            raise DamagedAdapter(f"{name} of the adapter is not in the weights, or has another shape there")
        begin, end = (start + offset for offset in entry["data_offsets"])
        target = np.frombuffer(
            merged, dtype=_stored_dtype(name, entry["dtype"]), count=b.shape[0] * a.shape[1], offset=begin
        )
        if target.nbytes != end - begin:
            raise DamagedAdapter(f"the bytes of {name} in the weights are not what its shape says")
        stored = target.reshape(b.shape[0], a.shape[1])
        change = np.float32(adapter.scale) * (b @ a)
        if entry["dtype"] == "BF16":
            stored[...] = to_bfloat16(from_bfloat16(stored) + change)
        else:
            stored[...] = (stored.astype(np.float32) + change).astype(stored.dtype)
    return merged


def peft_config(adapter: LoraAdapter, base_model: str) -> dict[str, Any]:
    """What peft's `adapter_config.json` says of the adapter."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(adapter.matrices),
    }


def _stored_dtype(name: str, dtype: str) -> type[np.generic]:
    """How numpy holds a tensor of the file: bfloat16 as bits."""
    known: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": np.uint16}
    if dtype not in known:
        raise DamagedAdapter(f"{name} is {dtype} in the weights, to which nothing can be added")
    return known[dtype]
