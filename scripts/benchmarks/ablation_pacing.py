"""An engine that computes nothing and takes as long as a measured profile says, in virtual time.

    a decode step         base + per sequence · running + per context token · context of all that run
    a prefix              prefill seconds per token; a prompt that another running sequence has is there already
    beyond the capacity   the sequences that came last are pushed out, and computed again when there is room

Which is what an engine with a paged cache does (vLLM): a prompt is held once for all its sequences, and read by each.
Completions have recorded lengths; their tokens are zeros.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from controller.scheduling.decode_profile import DecodeProfile
from functions.rollout.engine import (
    EngineStats,
    FinishedSequence,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from scripts.benchmarks.ablation_forcing import LengthOf, ended
from shared.inference.prefix_kv import KvLayout, PrefixKv

LAYOUT = KvLayout(num_layers=1, num_kv_heads=1, head_dim=1, dtype="float32")


@dataclass(slots=True)
class _Sequence:
    request: SequenceRequest
    length: int
    num_tokens: int

    @property
    def id(self) -> tuple[str, int]:
        return self.request.row_uid, self.request.sample

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.request.prompt_token_ids

    @property
    def context_tokens(self) -> int:
        return len(self.request.prompt_token_ids) + self.num_tokens


class PacedEngine:
    """The ``Engine`` port with a profile in place of a model."""

    def __init__(
        self,
        profile: DecodeProfile,
        length_of: LengthOf,
        spend: Callable[[float], None],
        *,
        load_s: float = 0.0,
    ) -> None:
        """``spend`` lets the calling computation take so long; ``load_s`` is what new weights take."""
        self._profile = profile
        self._length_of = length_of
        self._spend = spend
        self._load_s = load_s
        self._running: dict[tuple[str, int], _Sequence] = {}
        self._outside: deque[_Sequence] = deque()
        """What has no room now, in the order in which it will get some."""
        self._read_tokens = 0
        """Context that a step reads: of every running sequence."""
        self._generated_tokens = 0
        """Of all running sequences."""
        self._prompts: Counter[tuple[int, ...]] = Counter()
        """Running sequences by prompt."""
        self._prefixes: set[tuple[int, ...]] = set()
        """What was computed elsewhere and handed over."""
        self._prefilled = self._reused = 0

    @property
    def layout(self) -> KvLayout:
        """See ``Engine``."""
        return LAYOUT

    @property
    def num_running(self) -> int:
        """See ``Engine``. Those without room count."""
        return len(self._running) + len(self._outside)

    def load(self, weights: bytes | memoryview) -> None:
        """Takes its time."""
        self._spend(self._load_s)
        self._prefixes.clear()

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        """Changes nothing."""
        self._prefixes.clear()

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        """See ``Engine``."""
        self._prefixes |= {prefix.token_ids for prefix in prefixes}

    def drop_prefixes(self) -> None:
        """See ``Engine``."""
        self._prefixes.clear()

    def kv_of(self, row_uid: str, sample: int) -> PrefixKv:
        """Zeros in a layout of next to nothing."""
        sequence = self._running[row_uid, sample]
        token_ids = (*sequence.prompt, *(0,) * sequence.num_tokens)[:-1]
        empty = torch.zeros(1, 1, len(token_ids), 1)
        return PrefixKv(token_ids=token_ids, keys=empty, values=empty)

    def stats(self) -> EngineStats:
        """See ``Engine``."""
        stats = EngineStats(
            num_running=self.num_running,
            context_tokens=self._read_tokens,
            prefill_tokens=self._prefilled,
            reused_tokens=self._reused,
            prefill_s=self._prefilled * self._profile.prefill_token_s,
        )
        self._prefilled = self._reused = 0
        return stats

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """See ``Engine``."""
        for request in requests:
            length = self._length_of(request.row_uid, request.sample)
            if length > params.max_tokens:
                raise ValueError(f"a length of {length} tokens is more than max_tokens, {params.max_tokens}")
            self._outside.append(_Sequence(request, length, len(request.generated.token_ids)))
        self._let_in()

    def step(self) -> list[FinishedSequence]:
        """See ``Engine``."""
        self._push_out()
        self._let_in()
        self._spend(self._profile.step_seconds(len(self._running), self._read_tokens))
        finished = []
        for sequence in list(self._running.values()):
            sequence.num_tokens += 1
            self._read_tokens += 1
            self._generated_tokens += 1
            if sequence.num_tokens >= sequence.length:
                self._leave(sequence)
                finished.append(ended(_partial(sequence)))
        return finished

    def abort(self, ids: Collection[tuple[str, int]] | None = None) -> list[PartialSequence]:
        """See ``Engine``."""
        everything = [*self._running.values(), *self._outside]
        taken = [sequence for sequence in everything if ids is None or sequence.id in ids]
        for sequence in taken:
            if sequence.id in self._running:
                self._leave(sequence)
            else:
                self._outside.remove(sequence)
        return [_partial(sequence) for sequence in taken]

    def _held_tokens(self) -> int:
        """What the cache holds: prompts once."""
        return self._generated_tokens + sum(map(len, self._prompts))

    def _push_out(self) -> None:
        """Make room for the next token of all others, at the cost of those that came last."""
        capacity = self._profile.kv_capacity_tokens
        while capacity and len(self._running) > 1 and self._held_tokens() + len(self._running) > capacity:
            sequence = self._running[next(reversed(self._running))]
            self._leave(sequence)
            self._outside.appendleft(sequence)

    def _let_in(self) -> None:
        """Compute the prefixes of those outside, as long as there is room for them and for their next token."""
        capacity = self._profile.kv_capacity_tokens
        while self._outside:
            sequence = self._outside[0]
            needed = sequence.num_tokens + len(self._running) + 1
            needed += 0 if sequence.prompt in self._prompts else len(sequence.prompt)
            if capacity and self._running and self._held_tokens() + needed > capacity:
                return
            self._enter(self._outside.popleft())

    def _enter(self, sequence: _Sequence) -> None:
        known = sequence.prompt in self._prompts or sequence.prompt[:-1] in self._prefixes
        num_reused = len(sequence.prompt) if known else 0
        if (sequence.prompt + (0,) * sequence.num_tokens)[:-1] in self._prefixes:
            num_reused = sequence.context_tokens
        num_computed = sequence.context_tokens - num_reused
        self._reused += num_reused
        self._prefilled += num_computed
        self._spend(num_computed * self._profile.prefill_token_s)
        self._running[sequence.id] = sequence
        self._prompts[sequence.prompt] += 1
        self._read_tokens += sequence.context_tokens
        self._generated_tokens += sequence.num_tokens

    def _leave(self, sequence: _Sequence) -> None:
        del self._running[sequence.id]
        self._prompts[sequence.prompt] -= 1
        if not self._prompts[sequence.prompt]:
            del self._prompts[sequence.prompt]
        self._read_tokens -= sequence.context_tokens
        self._generated_tokens -= sequence.num_tokens


def _partial(sequence: _Sequence) -> PartialSequence:
    count = sequence.num_tokens
    return PartialSequence(
        row_uid=sequence.request.row_uid,
        sample=sequence.request.sample,
        token_ids=(0,) * count,
        logprobs=(-1.0,) * count,
        processed_logprobs=(-1.0,) * count,
        loss_mask=(True,) * count,
    )
