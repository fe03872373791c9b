"""The engine port: what the rollout stage asks of whatever generates the tokens.

An engine holds one policy and a set of running sequences. The worker adds sequences, calls `step` until none
runs, and may abort at any time; an aborted sequence goes on elsewhere, from its tokens, with the same result.
An engine is used from one thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.completion import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest:
    """One completion to sample. `generated_*` are non-empty when it is resumed."""

    row_uid: str
    sample: int
    prompt_token_ids: tuple[int, ...]
    seed: int
    """From `shared.modeling.randomness.address_seed`."""
    generated_token_ids: tuple[int, ...] = ()
    """Tokens that an earlier engine sampled; they count against `max_tokens` and keep their positions."""
    generated_logprobs: tuple[float, ...] = ()
    """Their logprobs, one per token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. An engine uses these and nothing from a model's generation config."""

    temperature: float
    """0 takes the most probable token, for evaluation only."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_tokens: int = 0
    """No EOS is sampled before this many tokens."""
    max_tokens: int
    eos_token_ids: tuple[int, ...]
    """Any of these ends a completion and is its last token. Empty: every completion has `max_tokens`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSequence:
    """A sequence that was aborted; its tokens are what a request's `generated_*` take."""

    row_uid: str
    sample: int
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSequence:
    """A complete completion."""

    row_uid: str
    sample: int
    token_ids: tuple[int, ...]
    """The EOS that ended it is included, because it is trained."""
    logprobs: tuple[float, ...]
    """Of each token under the full softmax at the sampling temperature: neither top-p, top-k nor `min_tokens`
    changes them, so they are what the learner computes. At temperature 0: under the untempered softmax."""
    finish_reason: FinishReason


class Engine(Protocol):
    """Generates for many sequences at once, one token per sequence and step."""

    @property
    def num_running(self) -> int:
        """Sequences added and neither finished nor aborted."""
        ...

    def load(self, weights: bytes) -> None:
        """Takes the weights of another policy version from a blob.

        Raises WeightsMismatch when the blob does not fit, and RuntimeError while sequences run: their prefix was
        computed with the old weights.
        """
        ...

    def add(self, requests: Sequence[SequenceRequest], params: SamplingParams) -> None:
        """Starts sequences beside those that run; equal prompts are computed once.

        Raises InvalidInput, with nothing added, for an empty prompt, a token id outside the vocabulary, a sequence
        that would not fit the context, or a resumed one that is already complete.
        """
        ...

    def step(self) -> list[FinishedSequence]:
        """Samples one token for every running sequence; returns those that this ended."""
        ...

    def abort(self) -> list[PartialSequence]:
        """Stops all running sequences and returns what they have."""
        ...
