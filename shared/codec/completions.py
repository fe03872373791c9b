"""Completions as safetensors bytes: arrays as tensors, the rest as JSON in one entry of the metadata.

One entry, since safetensors writes several in any order: equal completions are equal bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from shared.codec.safetensors_header import NOT_OURS, metadata_of
from shared.contracts.completion import Completion, FinishReason, SampleId, Stay
from shared.contracts.wire import Wire

FACTS = "completion"
TENSORS = {"token_ids": "i4", "rollout_logprobs": "f4", "processed_logprobs": "f4", "loss_mask": "b1"}


class DamagedCompletion(Exception):
    """Stored bytes are not a completion."""


class _Facts(Wire):
    """What is known of a completion besides its tokens."""

    row_uid: str
    sample: int
    prompt_num_tokens: int
    segments: tuple[int, ...]
    finish_reason: FinishReason
    policy_version: int
    weights_digest: str
    instance: str
    started_at: float
    ended_at: float
    stays: tuple[Stay, ...] = ()


class _PartialFacts(Wire):
    """What is known of an unfinished completion besides its tokens."""

    stays: tuple[Stay, ...] = ()
    has_kv: bool = False


def encode_completion(completion: Completion) -> bytes:
    """One completion as bytes."""
    facts = _Facts(
        row_uid=completion.id.row_uid,
        sample=completion.id.sample,
        prompt_num_tokens=completion.prompt_num_tokens,
        segments=completion.segments,
        finish_reason=completion.finish_reason,
        policy_version=completion.policy_version,
        weights_digest=completion.weights_digest,
        instance=completion.instance,
        started_at=completion.started_at,
        ended_at=completion.ended_at,
        stays=completion.stays,
    )
    return save(
        {name: np.ascontiguousarray(getattr(completion, name), dtype=dtype) for name, dtype in TENSORS.items()},
        metadata={FACTS: facts.model_dump_json()},
    )


def decode_completion(data: bytes) -> Completion:
    """Inverse of ``encode_completion``. Raises ``DamagedCompletion``."""
    with _damaged("completion"):
        facts = _Facts.model_validate_json(metadata_of(data)[FACTS])
        token_ids, rollout_logprobs, processed_logprobs, loss_mask = _vectors(data, **TENSORS)
        return Completion(
            id=SampleId(facts.row_uid, facts.sample),
            prompt_num_tokens=facts.prompt_num_tokens,
            token_ids=token_ids,
            rollout_logprobs=rollout_logprobs,
            processed_logprobs=processed_logprobs,
            loss_mask=loss_mask,
            segments=facts.segments,
            finish_reason=facts.finish_reason,
            policy_version=facts.policy_version,
            weights_digest=facts.weights_digest,
            instance=facts.instance,
            started_at=facts.started_at,
            ended_at=facts.ended_at,
            stays=facts.stays,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """The tokens of an unfinished completion: the fields of ``Completion`` that hold one entry for each. [T] each"""

    token_ids: NDArray[np.int32]
    rollout_logprobs: NDArray[np.float32]
    processed_logprobs: NDArray[np.float32]
    loss_mask: NDArray[np.bool_]
    stays: tuple[Stay, ...] = ()
    """Where it was sampled so far, in order."""
    has_kv: bool = False
    """Whether its keys and values were stored too, under the hashes of its tokens."""


def encode_partial(partial: Partial) -> bytes:
    """An unfinished completion as bytes."""
    return save(
        {name: np.ascontiguousarray(getattr(partial, name), dtype=dtype) for name, dtype in TENSORS.items()},
        metadata={FACTS: _PartialFacts(stays=partial.stays, has_kv=partial.has_kv).model_dump_json()},
    )


def decode_partial(data: bytes) -> Partial:
    """Inverse of ``encode_partial``. Raises ``DamagedCompletion``."""
    with _damaged("unfinished completion"):
        facts = _PartialFacts.model_validate_json(metadata_of(data)[FACTS])
        return Partial(
            **dict(zip(TENSORS, _vectors(data, **TENSORS), strict=True)), stays=facts.stays, has_kv=facts.has_kv
        )


@contextmanager
def _damaged(what: str) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, *NOT_OURS) as error:
        raise DamagedCompletion(f"not a stored {what}: {error}") from error


def _vectors(data: bytes, **dtypes: str) -> list[NDArray[Any]]:
    """The named tensors, all of one length T. [T] each"""
    tensors = load(data)
    vectors = [tensors[name] for name in dtypes]
    for vector, (name, dtype) in zip(vectors, dtypes.items(), strict=True):
        if vector.dtype != np.dtype(dtype) or vector.shape != (len(vectors[0]),):
            raise ValueError(f"{name} is {vector.dtype} of shape {vector.shape}")
    return vectors
