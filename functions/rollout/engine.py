"""The engine port: what the rollout stage asks of whatever generates the tokens.

An engine holds one policy and a set of running sequences. The worker adds sequences, calls `step` until none
runs, and may abort at any time; an aborted sequence goes on elsewhere, from its tokens, with the same result.
An engine is used from one thread.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.contracts.completion import FinishReason
from shared.inference.prefix_kv import KvLayout, PrefixKv


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTokens:
    """What a sequence has after its prompt: sampled tokens and, between its turns, inserted ones. [T] each."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """Of each sampled token under the full softmax at the sampling temperature: neither top-p, top-k nor `min_tokens`
    changes them, so they are what the learner computes. At temperature 0: under the untempered softmax. 0 where a
    token was inserted."""
    processed_logprobs: tuple[float, ...] = ()
    """Of each sampled token under the distribution that it was drawn from: after temperature, `min_tokens`, top-k and
    top-p, normalised. Without the last three, `logprobs` bit for bit. At temperature 0 the token is certain: 0. 0 also
    where a token was inserted."""
    loss_mask: tuple[bool, ...] = ()
    """True where the token was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRequest:
    """One completion to sample."""

    row_uid: str
    sample: int
    prompt_token_ids: tuple[int, ...]
    seed: int
    """From `shared.modeling.randomness.address_seed`."""
    generated: GeneratedTokens = GeneratedTokens()
    """What an earlier engine made of it; these tokens count against `max_tokens` and keep their positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. An engine uses these and nothing from a model's generation config."""

    temperature: float
    """0 takes the most probable token, for evaluation only."""
    top_p: float = 1.0
    top_k: int = 0
    """0 keeps all tokens."""
    min_tokens: int = 0
    """No EOS is sampled before this many tokens, and no stop string ends a turn before."""
    max_tokens: int
    """Of a whole completion: inserted tokens count."""
    eos_token_ids: tuple[int, ...]
    """Any of these ends a turn and is its last token. Empty: only stop strings end one before `max_tokens`."""
    stop: tuple[str, ...] = ()
    """Any of these strings ends a turn once its text has it, however tokens cut it; the token that completes it is the
    turn's last. Special tokens are spelled out in that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSequence(GeneratedTokens):
    """A sequence that was aborted; a request takes it as what was `generated`."""

    row_uid: str
    sample: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSequence(GeneratedTokens):
    """A complete completion. The EOS that ended it is included, because it is trained."""

    row_uid: str
    sample: int
    finish_reason: FinishReason


NextTurn = Callable[[GeneratedTokens, str | None], tuple[int, ...]]
"""What follows a turn that has just ended: (the sequence so far, the stop string that ended the turn; None for an EOS)
→ the tokens to insert before the next turn, or none if the sequence is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What an engine holds now, and what adding sequences has cost since the last look."""

    num_running: int
    context_tokens: int
    """Tokens whose keys and values the running sequences attend to, of all of them together: a shared prompt counts
    once per sequence."""
    prefill_tokens: int
    """Computed before the first token of a sequence could be sampled, or inserted between its turns."""
    reused_tokens: int
    """Of prompts and resumed tokens that needed no computing: another sequence had them, or a held prefix."""
    prefill_s: float
    """Seconds of that computing."""


class Engine(Protocol):
    """Generates for many sequences at once, one token per sequence and step."""

    @property
    def layout(self) -> KvLayout:
        """Of the keys and values that it computes and takes."""
        ...

    @property
    def num_running(self) -> int:
        """Sequences added and neither finished nor aborted."""
        ...

    def load(self, weights: bytes | memoryview) -> None:
        """Takes the weights of another policy version from a blob, without an adapter.

        Raises WeightsMismatch when the blob does not fit, and RuntimeError while sequences run: their prefix was
        computed with the old weights.
        """
        ...

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        """Adds a LoRA adapter from a blob to the loaded weights in place of the one before, if any; None: no adapter.

        Raises as `load`.
        """
        ...

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        """Takes prefixes that someone computed with the loaded weights: a sequence added later that begins like one
        starts from it. They are held beside those from before, until `drop_prefixes`, `load` or `adapt`.

        Raises InvalidInput, with nothing taken, for keys and values of another layout or of other lengths.
        """
        ...

    def drop_prefixes(self) -> None:
        """Forgets the held prefixes. Sequences that started from them are not affected."""
        ...

    def kv_of(self, row_uid: str, sample: int) -> PrefixKv:
        """A copy of what is computed of a running sequence: of its prompt and all its tokens but the last.

        Raises KeyError when it does not run.
        """
        ...

    def stats(self) -> EngineStats:
        """What is held now, and what was computed since the last call of this."""
        ...

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """Starts sequences beside those that run; equal prompts, and what prompts begin with alike, are computed once.

        With `next_turn`, a sequence whose turn ends goes on after the tokens that it inserts, unless these and one
        token more exceed `max_tokens`: then they are left out and the finish reason is "length". The function is pure.

        Raises InvalidInput, with nothing added, for an empty prompt, a token id outside the vocabulary, a sequence
        that would not fit the context, a resumed one that is already complete, or stop strings where there is no
        tokenizer.
        """
        ...

    def step(self) -> list[FinishedSequence]:
        """Samples one token for every running sequence; returns those that this ended.

        Raises InvalidInput when `next_turn` gives a token id outside the vocabulary.
        """
        ...

    def abort(self, ids: Collection[tuple[str, int]] | None = None) -> list[PartialSequence]:
        """Stops the running sequences with these (row uid, sample), by default all, and returns what they have.

        Those that do not run (any more) are passed over.
        """
        ...
