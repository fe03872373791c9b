"""The rows of a batch on their way to another rank: all arrays one behind the other, and the rest as JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from functions.learner.rows import TrainRow
from shared.training.state_blob import decode_state, encode_state

KIND = "rows"
FACTS = ("row_uid", "sample", "round", "reward", "finish_reason")
PER_TOKEN = ("completion_token_ids", "loss_mask", "rollout_logprobs")
OPTIONAL = ("reference_logprobs", "values", "advantages", "old_logprobs")


def encode_rows(rows: Sequence[TrainRow]) -> bytes:
    """Rows as bytes; numbers come back exactly."""
    arrays = {name: [getattr(row, name) for row in rows] for name in ("prompt_token_ids", *PER_TOKEN, *OPTIONAL)}
    present = {name: [array for array in each if array is not None] for name, each in arrays.items()}
    facts = {
        "rows": [{name: getattr(row, name) for name in FACTS} for row in rows],
        "lengths": [[row.prompt_token_ids.size, row.num_tokens] for row in rows],
        "has": {name: [getattr(row, name) is not None for row in rows] for name in OPTIONAL},
    }
    tensors = {name: torch.from_numpy(np.concatenate(each)) for name, each in present.items() if each}
    return encode_state(KIND, tensors, facts)


def decode_rows(blob: bytes) -> list[TrainRow]:
    """Inverse of ``encode_rows``. Raises ``DamagedState``."""
    tensors, facts = decode_state(KIND, blob)
    rest = {name: tensor.numpy() for name, tensor in tensors.items()}

    def take(name: str, length: int) -> Any:
        taken, rest[name] = rest[name][:length], rest[name][length:]
        return taken

    rows = []
    for index, (fields, (num_prompt, num_completion)) in enumerate(zip(facts["rows"], facts["lengths"], strict=True)):
        arrays = {"prompt_token_ids": take("prompt_token_ids", num_prompt)}
        arrays |= {name: take(name, num_completion) for name in PER_TOKEN}
        arrays |= {name: take(name, num_completion) for name in OPTIONAL if facts["has"][name][index]}
        rows.append(TrainRow(**fields, **arrays))
    return rows
