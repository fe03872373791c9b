"""Completions as safetensors bytes: arrays as tensors, the rest as its string metadata."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shared.contracts.completion import Completion, SampleId

HEADER_LENGTH_BYTES = 8
NOT_OURS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a header that is somebody else's JSON may raise."""


class DamagedCompletion(Exception):
    """Stored bytes are not a completion."""


def encode_completion(completion: Completion) -> bytes:
    """One completion as bytes."""
    return save(
        {
            "token_ids": np.ascontiguousarray(completion.token_ids, dtype=np.int32),
            "rollout_logprobs": np.ascontiguousarray(completion.rollout_logprobs, dtype=np.float32),
            "loss_mask": np.ascontiguousarray(completion.loss_mask, dtype=np.bool_),
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
    with _damaged("completion"):
        header = _metadata(data)
        token_ids, rollout_logprobs, loss_mask = _vectors(data, token_ids="i4", rollout_logprobs="f4", loss_mask="b1")
        segments = json.loads(header["segments"])
        if not isinstance(segments, list) or not all(type(start) is int for start in segments):
            raise ValueError("segments are no list of integers")
        reason = header["finish_reason"]
        if reason not in ("stop", "length"):
            raise ValueError(f"finish reason {reason!r}")
        return Completion(
            id=SampleId.parse(header["id"]),
            prompt_num_tokens=int(header["prompt_num_tokens"]),
            token_ids=token_ids,
            rollout_logprobs=rollout_logprobs,
            loss_mask=loss_mask,
            segments=tuple(segments),
            finish_reason="stop" if reason == "stop" else "length",
            policy_version=int(header["policy_version"]),
            weights_digest=header["weights_digest"],
            instance=header["instance"],
            started_at=float(header["started_at"]),
            ended_at=float(header["ended_at"]),
        )


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
    """Inverse of ``encode_partial``. Raises ``DamagedCompletion``."""
    with _damaged("unfinished completion"):
        return Partial(*_vectors(data, token_ids="i4", rollout_logprobs="f4"))


@contextmanager
def _damaged(what: str) -> Iterator[None]:
    try:
        yield
    # The tensors' header is somebody's JSON: any of these means that it is not ours.
    except (
        SafetensorError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DamagedCompletion(f"not a stored {what}: {error}") from error


def _vectors(data: bytes, **dtypes: str) -> list[NDArray[Any]]:
    """The named tensors, all of one length T. [T] each"""
    tensors = load(data)
    vectors = [tensors[name] for name in dtypes]
    for vector, (name, dtype) in zip(vectors, dtypes.items(), strict=True):
        if vector.dtype != np.dtype(dtype) or vector.shape != (len(vectors[0]),):
            raise ValueError(f"{name} is {vector.dtype} of shape {vector.shape}")
    return vectors


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
    header = json.loads(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
    metadata: dict[str, str] = header["__metadata__"]
    return metadata
