"""rollout → reward, reference, critic, learner: one completion, committed by itself (DESIGN, rule 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, order=True)
class SampleId:
    """Which completion: sample ``sample`` of row ``row_uid``. Sorts by row, then sample."""

    row_uid: str
    sample: int

    def __str__(self) -> str:
        return f"{self.row_uid}:{self.sample}"

    @classmethod
    def parse(cls, text: str) -> "SampleId":
        """Inverse of ``str``."""
        row_uid, _, sample = text.rpartition(":")
        return cls(row_uid, int(sample))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The time of one sequence in one actor's engine. Times are Unix seconds of its replica."""

    shard: int
    instance: str
    started_at: float
    first_token_at: float | None
    """When the first token of this stay was sampled; ``None`` if it left before."""
    ended_at: float
    num_tokens: int
    """Tokens after the prompt at the end of the stay."""


def num_migrations(stays: Sequence[Stay]) -> int:
    """How often a sequence went on at another replica than before."""
    return sum(before.instance != after.instance for before, after in pairwise(stays))


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sampled completion. T counts all tokens after the prompt: sampled ones and, with tools, inserted ones.

    ``loss_mask`` is True where the token was sampled by the policy and is to be trained. ``segments`` holds the
    start of each of the policy's turns within the T tokens (``(0,)`` for a single turn); a turn's answer follows it.
    """

    id: SampleId
    prompt_num_tokens: int
    token_ids: NDArray[np.int32]
    """[T]"""
    rollout_logprobs: NDArray[np.float32]
    """[T] log-probability under the full softmax at the sampling temperature; 0 where ``loss_mask`` is False.
    Ratios are taken of these."""
    processed_logprobs: NDArray[np.float32]
    """[T] log-probability with which the token was really drawn: after temperature, top-k and top-p, normalised; 0
    where ``loss_mask`` is False."""
    loss_mask: NDArray[np.bool_]
    """[T]"""
    segments: tuple[int, ...]
    finish_reason: FinishReason
    policy_version: int
    weights_digest: str
    instance: str
    """The replica that finished it."""
    started_at: float
    """Unix seconds at which the first token was asked for."""
    ended_at: float
    stays: tuple[Stay, ...] = ()
    """Where it was sampled, in order; empty where the function did not say so."""
