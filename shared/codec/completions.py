"""Completions as safetensors bytes: arrays as tensors, the rest as its string metadata."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shared.contracts.completion import Completion, SampleId

HEADER_LENGTH_BYTES = 8


class DamagedCompletion(Exception):
    """Stored bytes are not a completion."""


def encode_completion(completion: Completion) -> bytes:
    """One completion as bytes."""
    return save(
        {
            "token_ids": completion.token_ids,
            "rollout_logprobs": completion.rollout_logprobs,
            "loss_mask": completion.loss_mask,
        },
        metadata={
            "id": str(completion.id),
            "prompt_num_tokens": str(completion.prompt_num_tokens),
            "segments": json.dumps(completion.segments),
            "finish_reason": completion.finish_reason,
            "policy_version": str(completion.policy_version),
            "weights_digest": completion.weights_digest,
            "instance": completion.instance,
            "started_at": repr(completion.started_at),
            "ended_at": repr(completion.ended_at),
        },
    )


def decode_completion(data: bytes) -> Completion:
    """Inverse of ``encode_completion``. Raises ``DamagedCompletion``."""
    try:
        tensors, metadata = load(data), _metadata(data)
        reason = metadata["finish_reason"]
        if reason not in ("stop", "length"):
            raise ValueError(f"finish reason {reason!r}")
        return Completion(
            id=SampleId.parse(metadata["id"]),
            prompt_num_tokens=int(metadata["prompt_num_tokens"]),
            token_ids=tensors["token_ids"],
            rollout_logprobs=tensors["rollout_logprobs"],
            loss_mask=tensors["loss_mask"],
            segments=tuple(json.loads(metadata["segments"])),
            finish_reason="stop" if reason == "stop" else "length",
            policy_version=int(metadata["policy_version"]),
            weights_digest=metadata["weights_digest"],
            instance=metadata["instance"],
            started_at=float(metadata["started_at"]),
            ended_at=float(metadata["ended_at"]),
        )
    except (SafetensorError, KeyError, ValueError) as error:
        raise DamagedCompletion(f"not a stored completion: {error}") from error


@dataclass(frozen=True, slots=True)
class Partial:
    """The tokens of an unfinished completion, and their logprobs. [T], [T]"""

    token_ids: NDArray[np.int32]
    rollout_logprobs: NDArray[np.float32]


def encode_partial(token_ids: Sequence[int], rollout_logprobs: Sequence[float]) -> bytes:
    """An unfinished completion as bytes."""
    return save(
        {
            "token_ids": np.asarray(token_ids, dtype=np.int32),
            "rollout_logprobs": np.asarray(rollout_logprobs, dtype=np.float32),
        }
    )


def decode_partial(data: bytes) -> Partial:
    """Inverse of ``encode_partial``."""
    tensors = load(data)
    return Partial(tensors["token_ids"], tensors["rollout_logprobs"])


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
    header = json.loads(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
    metadata: dict[str, str] = header["__metadata__"]
    return metadata
