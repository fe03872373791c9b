"""The running sequences, one row each, as tensors that a step updates as a whole.

Each row has one pending token, its last, which the cache does not hold yet: a step feeds it, samples the next
one and makes that pending. What a step must know of the rows to go on is counted twice, also on the host, so that
nothing waits for the device.

Shapes: B = rows, C = the largest `max_tokens`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from functions.rollout.engine import (
    FinishedSequence,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from functions.rollout.torch_engine.stop_strings import StopSearch
from functions.rollout.turns.spans import last_turn
from shared.contracts.completion import FinishReason
from shared.inference.prefix_tree import Segment
from shared.modeling.randomness import uniforms

_DRAWS_AHEAD = 32
"""Uniform numbers are made for so many tokens at once: for few rows, one token's cost as much."""

Rows = Tensor | slice
"""An index into the rows: some of them, or all."""


@dataclass(slots=True, kw_only=True)
class _State:
    """Per-row tensors; all are `[B]` but the first four, which are `[B, C]`."""

    token_ids: Tensor
    """int64, what has been generated, then zeros."""
    logprobs: Tensor
    """float32"""
    processed_logprobs: Tensor
    """float32"""
    loss_mask: Tensor
    """bool, False where a token was inserted, else True."""
    num_generated: Tensor
    seeds: Tensor
    pending: Tensor
    positions: Tensor
    """Of the pending token in its whole sequence: how many tokens before it are computed."""
    slots: Tensor
    """How many of these are the row's own: where the pending token goes in the row's cache."""

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.__slots__}


Counts = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class _Counts:
    """Per-row numbers on the host, `[B]` each; those of `_State` with the same names are equal."""

    num_generated: Counts
    limits: Counts
    """`max_tokens`"""
    positions: Counts
    slots: Counts

    def arrays(self) -> dict[str, Counts]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Tokens that the cache lacks of a running row; its slots before `start` are filled."""

    row: int
    start: int
    token_ids: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Row:
    """What belongs to a row besides tensors."""

    request: SequenceRequest
    params: SamplingParams
    next_turn: NextTurn | None
    shared: Segment | None
    """The last segment that it shares; what follows is its own."""
    search: StopSearch | None
    """For stop strings, if there are any, in the text of the turn."""


class Batch:
    """Rows come in at the end; where one leaves, the last one takes its place."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.clear()

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forgets all rows."""
        self._rows: list[_Row] = []
        self._groups: list[tuple[SamplingParams, Rows]] = []
        self._has_searches = False
        self.state, self.counts = self._build([], [], 0)
        self.max_slots = 0
        self._draws: list[Tensor] = []

    def add(
        self,
        requests: Sequence[SequenceRequest],
        shared: Sequence[Segment | None],
        params: SamplingParams,
        next_turn: NextTurn | None,
        new_search: Callable[[], StopSearch] | None,
    ) -> None:
        """Appends one row per request, with what it shares; `new_search` makes what finds its stop strings, if there
        are any."""
        new, counts = self._build(requests, shared, params.max_tokens)
        width = max(self.state.token_ids.shape[1], new.token_ids.shape[1])
        for state in (self.state, new):
            missing = width - state.token_ids.shape[1]
            for name in ("token_ids", "logprobs", "processed_logprobs"):
                setattr(state, name, torch.nn.functional.pad(getattr(state, name), (0, missing)))
            state.loss_mask = torch.nn.functional.pad(state.loss_mask, (0, missing), value=True)
        added = new.tensors()
        self.state = _State(**{name: torch.cat((old, added[name])) for name, old in self.state.tensors().items()})
        more = counts.arrays()
        self.counts = _Counts(**{name: np.concatenate((old, more[name])) for name, old in self.counts.arrays().items()})
        for request, segment in zip(requests, shared, strict=True):
            search = new_search() if new_search else None
            if search:
                search.follow(last_turn(request.generated))
            self._rows.append(_Row(request=request, params=params, next_turn=next_turn, shared=segment, search=search))
        self._regroup()

    def next_draws(self) -> Tensor:
        """The uniform numbers of the tokens that are sampled next, `[B]` float64. To be called once for each."""
        if not self._draws:
            ahead = torch.arange(_DRAWS_AHEAD, device=self._device)[:, None]
            # Taken from the end, which is the next token's.
            self._draws = list(uniforms(self.state.seeds, self.state.num_generated + ahead))[::-1]
        return self._draws.pop()

    def record(self, token_ids: Tensor, logprobs: Tensor, processed_logprobs: Tensor) -> None:
        """Appends one sampled token to every row, all `[B]`."""
        state, counts = self.state, self.counts
        column = state.num_generated[:, None]
        state.token_ids.scatter_(1, column, token_ids[:, None])
        state.logprobs.scatter_(1, column, logprobs[:, None])
        state.processed_logprobs.scatter_(1, column, processed_logprobs[:, None])
        state.pending = token_ids
        for count in (state.num_generated, state.positions, state.slots):
            count += 1
        for number in (counts.num_generated, counts.positions, counts.slots):
            number += 1

    def completed_stops(self) -> dict[int, str]:
        """The rows whose pending token completes a stop string, and which one."""
        if not self._has_searches:
            return {}
        completed = {}
        for index, (row, token_id) in enumerate(zip(self._rows, self.state.pending.tolist(), strict=True)):
            found = row.search.add(token_id) if row.search else None
            if found is not None and self.counts.num_generated[index] > row.params.min_tokens:
                completed[index] = found
        return completed

    def insertion(self, row: int, stop: str | None) -> tuple[int, ...]:
        """What its `next_turn` inserts into a row whose turn has ended; nothing if the row is finished."""
        next_turn = self._rows[row].next_turn
        return next_turn(self.partial(row), stop) if next_turn else ()

    def fits(self, row: int, num_tokens: int) -> bool:
        """Whether so many tokens can be inserted and another one sampled after them."""
        return bool(self.counts.num_generated[row] + num_tokens < self.counts.limits[row])

    def insert(self, insertions: Mapping[int, tuple[int, ...]]) -> list[Extension]:
        """Appends tokens that nobody sampled, at least one per row. Returns what the cache then lacks."""
        state, counts, extensions = self.state, self.counts, []
        self._draws = []
        for row, token_ids in insertions.items():
            generated = int(counts.num_generated[row])
            new = slice(generated, generated + len(token_ids))
            state.token_ids[row, new] = torch.tensor(token_ids, device=self._device)
            state.loss_mask[row, new] = False
            computed = (int(state.pending[row]), *token_ids[:-1])
            extensions.append(Extension(row=row, start=int(counts.slots[row]), token_ids=computed))
            for count in (state.num_generated, state.positions, state.slots):
                count[row] += len(token_ids)
            for number in (counts.num_generated, counts.positions, counts.slots):
                number[row] += len(token_ids)
            state.pending[row] = token_ids[-1]
            if search := self._rows[row].search:
                search.restart()
        return extensions

    def shared(self) -> list[Segment | None]:
        """The last segment that each row shares."""
        return [row.shared for row in self._rows]

    def index_of(self, row_uid: str, sample: int) -> int | None:
        """The row of a sequence, if it runs."""
        return next((row for row in range(len(self)) if self.id_of(row) == (row_uid, sample)), None)

    def id_of(self, row: int) -> tuple[str, int]:
        """Row uid and sample of a row's sequence."""
        return self._rows[row].request.row_uid, self._rows[row].request.sample

    def prompt(self, row: int) -> tuple[int, ...]:
        """Of a row's sequence."""
        return self._rows[row].request.prompt_token_ids

    def token_ids(self, row: int) -> tuple[int, ...]:
        """Prompt and what has been generated."""
        return self.prompt(row) + self.partial(row).token_ids

    def can_see_eos(self) -> bool:
        """Whether any row's sampled token can be an EOS."""
        return any(params.eos_token_ids for params, _ in self._groups)

    def groups(self) -> list[tuple[SamplingParams, Rows]]:
        """The rows by what they are sampled with; usually one group."""
        return self._groups

    def finished(self, row: int, reason: FinishReason) -> FinishedSequence:
        """The completion of a row."""
        return FinishedSequence(**self._identified(row), finish_reason=reason)

    def partial(self, row: int) -> PartialSequence:
        """What a row has so far."""
        return PartialSequence(**self._identified(row))

    def remove(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Takes rows out and fills the holes from the end; returns (sources, targets) of the rows that moved,
        which is all that anything stored by row has to follow."""
        num_left = len(self) - len(rows)
        removed = set(rows)
        targets = [row for row in rows if row < num_left]
        sources = [row for row in range(num_left, len(self)) if row not in removed]
        for source, target in zip(sources, targets, strict=True):
            self._rows[target] = self._rows[source]
        del self._rows[num_left:]
        moved_from = torch.tensor(sources, dtype=torch.int64, device=self._device)
        moved_to = torch.tensor(targets, dtype=torch.int64, device=self._device)
        for name, tensor in self.state.tensors().items():
            tensor[moved_to] = tensor[moved_from]
            setattr(self.state, name, tensor[:num_left])
        for name, array in self.counts.arrays().items():
            array[targets] = array[sources]
            setattr(self.counts, name, array[:num_left])
        self._regroup()
        return moved_from, moved_to

    def _identified(self, row: int) -> dict[str, Any]:
        """The fields of a sequence: which one it is, and its tokens."""
        request, state, length = self._rows[row].request, self.state, int(self.counts.num_generated[row])
        return {
            "row_uid": request.row_uid,
            "sample": request.sample,
            "token_ids": tuple(state.token_ids[row, :length].tolist()),
            "logprobs": tuple(state.logprobs[row, :length].tolist()),
            "processed_logprobs": tuple(state.processed_logprobs[row, :length].tolist()),
            "loss_mask": tuple(state.loss_mask[row, :length].tolist()),
        }

    def _regroup(self) -> None:
        self._draws = []
        self.max_slots = max((_most_slots(row) for row in self._rows), default=0)
        self._has_searches = any(row.search for row in self._rows)
        rows: dict[SamplingParams, list[int]] = {}
        for index, row in enumerate(self._rows):
            rows.setdefault(row.params, []).append(index)
        if len(rows) == 1:
            self._groups = [(self._rows[0].params, slice(None))]
        else:
            self._groups = [(key, torch.tensor(value, device=self._device)) for key, value in rows.items()]

    def _build(
        self, requests: Sequence[SequenceRequest], shared: Sequence[Segment | None], max_tokens: int
    ) -> tuple[_State, _Counts]:
        shape = (len(requests), max_tokens)
        token_ids = torch.zeros(shape, dtype=torch.int64)
        logprobs, processed_logprobs = torch.zeros(shape), torch.zeros(shape)
        loss_mask = torch.ones(shape, dtype=torch.bool)
        for row, request in enumerate(requests):
            known, length = request.generated, len(request.generated.token_ids)
            token_ids[row, :length] = torch.tensor(known.token_ids, dtype=torch.int64)
            logprobs[row, :length] = torch.tensor(known.logprobs)
            processed_logprobs[row, :length] = torch.tensor(known.processed_logprobs)
            loss_mask[row, :length] = torch.tensor(known.loss_mask, dtype=torch.bool)
        sequences = [request.prompt_token_ids + request.generated.token_ids for request in requests]
        positions = np.array([len(tokens) - 1 for tokens in sequences], dtype=np.int64)
        shared_tokens = np.array([segment.end if segment else 0 for segment in shared], dtype=np.int64)
        counts = _Counts(
            num_generated=np.array([len(request.generated.token_ids) for request in requests], dtype=np.int64),
            limits=np.full(len(requests), max_tokens, dtype=np.int64),
            positions=positions,
            slots=positions - shared_tokens,
        )
        state = _State(
            token_ids=token_ids,
            logprobs=logprobs,
            processed_logprobs=processed_logprobs,
            loss_mask=loss_mask,
            num_generated=torch.tensor(counts.num_generated),
            seeds=torch.tensor([request.seed for request in requests], dtype=torch.int64),
            pending=torch.tensor([tokens[-1] for tokens in sequences], dtype=torch.int64),
            positions=torch.tensor(counts.positions),
            slots=torch.tensor(counts.slots),
        )
        return _State(**{name: tensor.to(self._device) for name, tensor in state.tensors().items()}), counts


def _most_slots(row: _Row) -> int:
    """What the row's own tokens can ever need."""
    return len(row.request.prompt_token_ids) + row.params.max_tokens - (row.shared.end if row.shared else 0)
