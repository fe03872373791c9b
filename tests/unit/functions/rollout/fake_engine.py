"""An engine without a model: what it samples is a function of seed and position, and lengths are as scripted."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch

from functions.rollout.engine import (
    EngineStats,
    FinishedSequence,
    GeneratedTokens,
    NextTurn,
    PartialSequence,
    SamplingParams,
    SequenceRequest,
)
from shared.contracts.errors import InvalidInput
from shared.inference.prefix_kv import KvLayout, PrefixKv

EOS = 1
LAYOUT = KvLayout(num_layers=1, num_kv_heads=1, head_dim=1, dtype="float32")


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

    @property
    def name(self) -> tuple[str, int]:
        """Row and sample."""
        return self.request.row_uid, self.request.sample

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
    held: list[PrefixKv] = field(default_factory=list)
    """Prefixes that it was given and has not dropped."""
    _running: list[Running] = field(default_factory=list)
    _prefill_tokens: int = 0
    _reused_tokens: int = 0

    @property
    def layout(self) -> KvLayout:
        return LAYOUT

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
        for request in requests:
            tokens = (request.prompt_token_ids + request.generated.token_ids)[:-1]
            reused = max((len(prefix.token_ids) for prefix in self.held if is_beginning(prefix, tokens)), default=0)
            self._reused_tokens += reused
            self._prefill_tokens += len(tokens) - reused
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

    def abort(self, ids: Collection[tuple[str, int]] | None = None) -> list[PartialSequence]:
        aborted = [running for running in self._running if ids is None or running.name in ids]
        self._running = [running for running in self._running if running not in aborted]
        return [
            PartialSequence(row_uid=running.request.row_uid, sample=running.request.sample, **asdict(running.tokens()))
            for running in aborted
        ]

    def hold_prefixes(self, prefixes: Sequence[PrefixKv]) -> None:
        self.held += prefixes

    def drop_prefixes(self) -> None:
        self.held = []

    def kv_of(self, row_uid: str, sample: int) -> PrefixKv:
        """Keys are the token ids, values their negatives."""
        [running] = [running for running in self._running if running.name == (row_uid, sample)]
        tokens = (*running.request.prompt_token_ids, *running.token_ids)[:-1]
        keys = torch.tensor(tokens, dtype=torch.float32).reshape(1, 1, -1, 1)
        return PrefixKv(token_ids=tokens, keys=keys, values=-keys)

    def stats(self) -> EngineStats:
        stats = EngineStats(
            num_running=len(self._running),
            context_tokens=sum(
                len(running.request.prompt_token_ids) + len(running.token_ids) for running in self._running
            ),
            prefill_tokens=self._prefill_tokens,
            reused_tokens=self._reused_tokens,
            prefill_s=0.0,
        )
        self._prefill_tokens = self._reused_tokens = 0
        return stats

    def _is_done(self, running: Running) -> bool:
        return running.token_ids[-1] == EOS or len(running.token_ids) >= running.limit


def is_beginning(prefix: PrefixKv, token_ids: Sequence[int]) -> bool:
    return tuple(token_ids[: len(prefix.token_ids)]) == prefix.token_ids
