"""Learner state on its way through the blob store: tensors, and a few facts as JSON beside them.

A blob is a safetensors file whose metadata holds one key. Equal states give equal bytes: safetensors writes
tensors in a fixed order, but several metadata keys in a random one.
"""

import json
from collections.abc import Mapping
from typing import Any

from safetensors.torch import save
from torch import Tensor

from shared.codec.safetensors_header import NOT_OURS, metadata_of
from shared.modeling.errors import WeightsMismatch
from shared.modeling.tensor_views import tensor_views
from shared.training.errors import DamagedState

FACTS_KEY = "facts"


def encode_state(kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Tensors and facts as bytes. `kind` says what they are, so that one cannot be read as another."""
    on_cpu = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    return save(on_cpu, metadata={FACTS_KEY: json.dumps({"kind": kind, **facts}, sort_keys=True)})


def decode_state(kind: str, blob: bytes | memoryview) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Inverse of `encode_state`; the tensors are views of a writable blob (`tensor_views`). Raises DamagedState."""
    try:
        tensors = tensor_views(blob)
        facts = json.loads(metadata_of(blob)[FACTS_KEY])
        found = facts.pop("kind")
    except (WeightsMismatch, *NOT_OURS) as error:
        raise DamagedState(f"the blob is no learner state: {error}") from error
    if found != kind:
        raise DamagedState(f"the blob is a learner's {found}, not its {kind}")
    return tensors, facts
