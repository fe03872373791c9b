"""An engine without a model: what it samples is a function of seed and position, and lengths are as scripted."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from functions.rollout.engine import (
    FinishedSequence,
    GeneratedTokens,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from shared.contracts.errors import InvalidInput

EOS = 1


def token_at(seed: int, position: int, length: int) -> int:
    """The token of a sequence at a position; the last one of a scripted length is the EOS."""
    return EOS if position == length - 1 else 2 + (seed + 31 * position) % 95


@dataclass
class Running:
    """One sequence, and how many tokens it will have."""

    request: SequenceRequest
    length: int
    limit: int
    token_ids: list[int]
    logprobs: list[float]

    def tokens(self) -> GeneratedTokens:
        """What it has; what is drawn is the full distribution."""
        return GeneratedTokens(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            processed_logprobs=tuple(self.logprobs),
            loss_mask=(True,) * len(self.token_ids),
        )


@dataclass
class FakeEngine:
    """The ``Engine`` port. ``lengths`` are by (row, sample), ``default_length`` is that of all others."""

    lengths: Mapping[tuple[str, int], int] = field(default_factory=dict)
    default_length: int = 4
    step_s: float = 0.0
    on_step: Callable[[], None] = lambda: None
    """Called before each step, on the thread that computes."""
    weights: bytes | memoryview | None = None
    adapter: bytes | memoryview | None = None
    added: list[list[str]] = field(default_factory=list)
    """Names of the sequences of each ``add``."""
    num_steps: int = 0
    params: SamplingParams | None = None
    _running: list[Running] = field(default_factory=list)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def load(self, weights: bytes | memoryview) -> None:
        if self._running:
            raise RuntimeError("sequences still run")
        self.weights, self.adapter = weights, None

    def adapt(self, adapter: bytes | memoryview | None) -> None:
        if self._running:
            raise RuntimeError("sequences still run")
        self.adapter = adapter

    def add(
        self, requests: Sequence[SequenceRequest], params: SamplingParams, next_turn: NextTurn | None = None
    ) -> None:
        for request in requests:
            if len(request.generated.token_ids) >= params.max_tokens or EOS in request.generated.token_ids:
                raise InvalidInput(f"row {request.row_uid} sample {request.sample} is complete")
            if len(request.prompt_token_ids) > 100:
                raise InvalidInput(f"the prompt of row {request.row_uid} is too long")
        self.params = params
        self.added.append([f"{request.row_uid}:{request.sample}" for request in requests])
        for request in requests:
            self._running.append(
                Running(
                    request=request,
                    length=self.lengths.get((request.row_uid, request.sample), self.default_length),
                    limit=params.max_tokens,
                    token_ids=list(request.generated.token_ids),
                    logprobs=list(request.generated.logprobs),
                )
            )

    def step(self) -> list[FinishedSequence]:
        self.on_step()
        self.num_steps += 1
        if self.step_s:
            time.sleep(self.step_s)
        for running in self._running:
            token = token_at(running.request.seed, len(running.token_ids), running.length)
            running.token_ids.append(token)
            running.logprobs.append(-token / 128)
        done = [running for running in self._running if self._is_done(running)]
        self._running = [running for running in self._running if not self._is_done(running)]
        return [
            FinishedSequence(
                row_uid=running.request.row_uid,
                sample=running.request.sample,
                **asdict(running.tokens()),
                finish_reason="stop" if running.token_ids[-1] == EOS else "length",
            )
            for running in done
        ]

    def abort(self) -> list[PartialSequence]:
        partials = [
            PartialSequence(
                row_uid=running.request.row_uid,
                sample=running.request.sample,
                **asdict(running.tokens()),
            )
            for running in self._running
        ]
        self._running = []
        return partials

    def _is_done(self, running: Running) -> bool:
        return running.token_ids[-1] == EOS or len(running.token_ids) >= running.limit
