"""The running sequences, one row each, as tensors that a step updates as a whole.

Each row has one pending token, its last, which the cache does not hold yet: a step feeds it, samples the next
one and makes that pending.

Shapes: B = rows, C = the largest `max_tokens`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from functions.rollout.engine import FinishedSequence, PartialSequence, SamplingParams, SequenceRequest

Rows = Tensor | slice
"""An index into the rows: some of them, or all."""


@dataclass(slots=True, kw_only=True)
class _State:
    """Per-row tensors; all are `[B]` but the first two."""

    token_ids: Tensor
    """[B, C] int64, what has been generated, then zeros."""
    logprobs: Tensor
    """[B, C] float32"""
    num_generated: Tensor
    limits: Tensor
    """`max_tokens`"""
    seeds: Tensor
    pending: Tensor
    positions: Tensor
    """Of the pending token in its whole sequence: how many slots of the cache are filled."""

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.__slots__}


class Batch:
    """Rows come in at the end; where one leaves, the last one takes its place."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.clear()

    def __len__(self) -> int:
        return len(self._requests)

    def clear(self) -> None:
        """Forgets all rows."""
        self._requests: list[SequenceRequest] = []
        self._params: list[SamplingParams] = []
        self._groups: list[tuple[SamplingParams, Rows]] = []
        self.state = self._build([], 0)
        self.max_slots = 0

    def add(self, requests: Sequence[SequenceRequest], params: SamplingParams) -> None:
        """Appends one row per request."""
        new = self._build(requests, params.max_tokens)
        width = max(self.state.token_ids.shape[1], new.token_ids.shape[1])
        for state in (self.state, new):
            missing = width - state.token_ids.shape[1]
            state.token_ids = torch.nn.functional.pad(state.token_ids, (0, missing))
            state.logprobs = torch.nn.functional.pad(state.logprobs, (0, missing))
        added = new.tensors()
        self.state = _State(**{name: torch.cat((old, added[name])) for name, old in self.state.tensors().items()})
        self._requests += requests
        self._params += [params] * len(requests)
        self._regroup()

    def record(self, token_ids: Tensor, logprobs: Tensor) -> None:
        """Appends one sampled token `[B]` to every row."""
        state = self.state
        rows = torch.arange(len(self), device=self._device)
        state.token_ids[rows, state.num_generated] = token_ids
        state.logprobs[rows, state.num_generated] = logprobs
        state.num_generated += 1
        state.positions += 1
        state.pending = token_ids

    def groups(self) -> list[tuple[SamplingParams, Rows]]:
        """The rows by what they are sampled with; usually one group."""
        return self._groups

    def finished(self, row: int, *, ended_by_eos: bool) -> FinishedSequence:
        """The completion of a row."""
        reason = "stop" if ended_by_eos else "length"
        partial = self.partial(row)
        return FinishedSequence(
            row_uid=partial.row_uid,
            sample=partial.sample,
            token_ids=partial.token_ids,
            logprobs=partial.logprobs,
            finish_reason=reason,
        )

    def partial(self, row: int) -> PartialSequence:
        """What a row has so far."""
        request, length = self._requests[row], int(self.state.num_generated[row])
        return PartialSequence(
            row_uid=request.row_uid,
            sample=request.sample,
            token_ids=tuple(self.state.token_ids[row, :length].tolist()),
            logprobs=tuple(self.state.logprobs[row, :length].tolist()),
        )

    def remove(self, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Takes rows out and fills the holes from the end; returns (sources, targets) of the rows that moved,
        which is all that anything stored by row has to follow."""
        num_left = len(self) - len(rows)
        removed = set(rows)
        targets = [row for row in rows if row < num_left]
        sources = [row for row in range(num_left, len(self)) if row not in removed]
        for entries in (self._requests, self._params):
            for source, target in zip(sources, targets, strict=True):
                entries[target] = entries[source]
            del entries[num_left:]
        moved_from = torch.tensor(sources, dtype=torch.int64, device=self._device)
        moved_to = torch.tensor(targets, dtype=torch.int64, device=self._device)
        for name, tensor in self.state.tensors().items():
            tensor[moved_to] = tensor[moved_from]
            setattr(self.state, name, tensor[:num_left])
        self._regroup()
        return moved_from, moved_to

    def _regroup(self) -> None:
        self.max_slots = max(
            (
                len(request.prompt_token_ids) + params.max_tokens
                for request, params in zip(self._requests, self._params, strict=True)
            ),
            default=0,
        )
        rows: dict[SamplingParams, list[int]] = {}
        for row, params in enumerate(self._params):
            rows.setdefault(params, []).append(row)
        if len(rows) == 1:
            self._groups = [(self._params[0], slice(None))]
        else:
            self._groups = [(key, torch.tensor(value, device=self._device)) for key, value in rows.items()]

    def _build(self, requests: Sequence[SequenceRequest], max_tokens: int) -> _State:
        def column(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=self._device)

        token_ids = torch.zeros(len(requests), max_tokens, dtype=torch.int64)
        logprobs = torch.zeros(len(requests), max_tokens)
        for row, request in enumerate(requests):
            generated = len(request.generated_token_ids)
            token_ids[row, :generated] = torch.tensor(request.generated_token_ids, dtype=torch.int64)
            logprobs[row, :generated] = torch.tensor(request.generated_logprobs)
        known = [request.prompt_token_ids + request.generated_token_ids for request in requests]
        return _State(
            token_ids=token_ids.to(self._device),
            logprobs=logprobs.to(self._device),
            num_generated=column([len(request.generated_token_ids) for request in requests]),
            limits=column([max_tokens] * len(requests)),
            seeds=column([request.seed for request in requests]),
            pending=column([tokens[-1] for tokens in known]),
            positions=column([len(tokens) - 1 for tokens in known]),
        )
