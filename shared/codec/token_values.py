"""Per-token numbers of a batch's completions as one safetensors blob: logprobs, values, advantages, returns.

Each named vector holds the completions one behind the other, in the order of their ids. The ids and lengths stand in
one entry of the metadata, since safetensors writes several in any order: equal values are equal bytes.

Shapes: T tokens of one completion, N of all.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shared.codec.safetensors_header import NOT_OURS, metadata_of
from shared.contracts.completion import SampleId
from shared.contracts.wire import Wire

LAYOUT = "layout"

TokenValues = Mapping[SampleId, NDArray[np.float32]]
"""[T] by completion."""


class DamagedTokenValues(Exception):
    """Stored bytes are not token values, or not those that are asked for."""


class _Place(Wire):
    row_uid: str
    sample: int
    num_tokens: int


def encode_token_values(vectors: Mapping[str, TokenValues]) -> bytes:
    """Vectors by name, over the same completions. Raises ``ValueError`` where they differ in ids or lengths."""
    first = next(iter(vectors.values()))
    ids = sorted(first)
    lengths = [first[id].size for id in ids]
    for name, values in vectors.items():
        if sorted(values) != ids or [values[id].size for id in ids] != lengths:
            raise ValueError(f"{name} is of other completions")
    layout = [_Place(row_uid=id.row_uid, sample=id.sample, num_tokens=n) for id, n in zip(ids, lengths, strict=True)]
    flat = {
        name: np.concatenate([np.zeros(0, np.float32), *(values[id] for id in ids)]).astype(np.float32)
        for name, values in vectors.items()
    }
    return save(flat, metadata={LAYOUT: json.dumps([place.model_dump() for place in layout])})


def decode_token_values(data: bytes, names: Sequence[str]) -> dict[str, TokenValues]:
    """The named vectors. Raises ``DamagedTokenValues`` where the bytes do not hold them."""
    try:
        layout = [_Place.model_validate(place) for place in json.loads(metadata_of(data)[LAYOUT])]
        ends = np.cumsum([place.num_tokens for place in layout])
        tensors = load(data)
        flat = {name: tensors[name] for name in names}
        for name, vector in flat.items():
            if vector.dtype != np.float32 or vector.shape != (int(ends[-1]) if layout else 0,):
                raise ValueError(f"{name} is {vector.dtype} of shape {vector.shape}")
        return {
            name: {
                SampleId(place.row_uid, place.sample): part
                for place, part in zip(layout, np.split(vector, ends)[:-1], strict=True)
            }
            for name, vector in flat.items()
        }
    except (SafetensorError, *NOT_OURS) as error:
        raise DamagedTokenValues(f"not stored token values: {error}") from error
