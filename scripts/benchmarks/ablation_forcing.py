"""An engine whose completions have lengths that somebody wrote down: real speed, recorded lengths.

It asks nothing of the engine that the port does not have: nothing in it ends a sequence (no EOS, no stop string), and
after the step in which one reaches its length it is taken out.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from functions.rollout.engine import (
    Engine,
    EngineStats,
    FinishedSequence,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from shared.inference.prefix_kv import KvLayout, PrefixKv

LengthOf = Callable[[str, int], int]
"""(row uid, sample) → tokens of its completion."""


class ForcedLengths:
    """The ``Engine`` port around another engine."""

    def __init__(self, engine: Engine, length_of: LengthOf) -> None:
        self._engine = engine
        self._length_of = length_of
        self._left: dict[tuple[str, int], int] = {}
        """Tokens that each running sequence still gets: one in every step."""

    @property
    def layout(self) -> KvLayout:
        """See ``Engine``."""
        return self._engine.layout

    @property
    def num_running(self) -> int:
        """See ``Engine``."""
        return self._engine.num_running

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        """See ``Engine``. What would end a sequence by itself is left out."""
        if next_turn is not None:
            raise ValueError("lengths of single turns can be forced only")
        lengths = {
            (request.row_uid, request.sample): self._length_of(request.row_uid, request.sample) for request in requests
        }
        longest = max(lengths.values(), default=0)
        if longest > params.max_tokens:
            raise ValueError(f"a length of {longest} tokens is more than max_tokens, {params.max_tokens}")
        self._engine.add(requests, replace(params, eos_token_ids=(), stop=(), min_tokens=0))
        for request in requests:
            id = request.row_uid, request.sample
            self._left[id] = lengths[id] - len(request.generated.token_ids)

    def step(self) -> list[FinishedSequence]:
        """See ``Engine``."""
        finished = self._engine.step()
        for sequence in finished:
            # Its length is max_tokens, at which the engine itself ends it.
            del self._left[sequence.row_uid, sequence.sample]
        for id in self._left:
            self._left[id] -= 1
        due = [id for id, left in self._left.items() if left <= 0]
        if due:
            finished += [ended(partial) for partial in self.abort(due)]
        return finished

    def abort(self, ids: Collection[tuple[str, int]] | None = None) -> list[PartialSequence]:
        """See ``Engine``."""
        partials = self._engine.abort(ids)
        for partial in partials:
            self._left.pop((partial.row_uid, partial.sample), None)
        return partials

    def load(self, weights: bytes | memoryview) -> None:
        """See ``Engine``."""
        self._engine.load(weights)

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        """See ``Engine``."""
        self._engine.adapt(adapter)

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        """See ``Engine``."""
        self._engine.hold_prefixes(prefixes)

    def drop_prefixes(self) -> None:
        """See ``Engine``."""
        self._engine.drop_prefixes()

    def kv_of(self, row_uid: str, sample: int) -> PrefixKv:
        """See ``Engine``."""
        return self._engine.kv_of(row_uid, sample)

    def stats(self) -> EngineStats:
        """See ``Engine``."""
        return self._engine.stats()


def ended(partial: PartialSequence) -> FinishedSequence:
    """A sequence that has its recorded length, as an engine hands it out."""
    return FinishedSequence(
        row_uid=partial.row_uid,
        sample=partial.sample,
        token_ids=partial.token_ids,
        logprobs=partial.logprobs,
        processed_logprobs=partial.processed_logprobs,
        loss_mask=partial.loss_mask,
        finish_reason="stop",
    )
