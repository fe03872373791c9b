"""Lengths to replay: from a recorded trace (`rlhfless trace RUN`), or drawn as real ones are distributed.

Drawn lengths are log-normal: rows differ most, the samples of a row less, and a row moves a little from one epoch to
the next. RLHFless measured that movement for GSM8K and Qwen2.5-3B, at most 2048 tokens (arXiv 2602.22718): about 70 %
of the prompts by at most 50 tokens, 90 % by at most 100. The spreads are set so that the means of drawn rows do so.

    ln length = ln median + row + drift of the row in the epoch + sample,   row, drift, sample normal
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controller.runs.trace import TraceRow, TraceStep, read_trace

ROW_SPREAD = 0.6
DRIFT_SPREAD = 0.17
SAMPLE_SPREAD = 0.3
MEDIAN_TOKENS = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """One group to sample, with what the epoch before showed of it."""

    row_uid: str
    num_prompt_tokens: int
    lengths: tuple[int, ...]
    """[group_size] by sample: how long each completion is going to be."""
    known_lengths: tuple[int, ...]
    """[group_size] sorted, of the epoch before; empty where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStep:
    """The batch of one step."""

    rows: tuple[ReplayRow, ...]
    max_tokens: int

    @property
    def group_size(self) -> int:
        """Completions per row."""
        return len(self.rows[0].lengths)

    @property
    def num_tokens(self) -> int:
        """Of all completions."""
        return sum(sum(row.lengths) for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What to draw."""

    num_rows: int
    group_size: int
    prompt_tokens: int
    max_tokens: int
    median_tokens: int = MEDIAN_TOKENS


def drawn_lengths(workload: Workload, num_epochs: int, seed: int) -> NDArray[np.int64]:
    """Tokens by epoch, row and sample `[E, R, S]`; the same for the same seed."""
    noise = np.random.default_rng(seed)
    shape = (num_epochs, workload.num_rows, workload.group_size)
    rows = noise.normal(0.0, ROW_SPREAD, (1, workload.num_rows, 1))
    drift = noise.normal(0.0, DRIFT_SPREAD, (num_epochs, workload.num_rows, 1)).cumsum(axis=0)
    logs = np.log(workload.median_tokens) + rows + drift + noise.normal(0.0, SAMPLE_SPREAD, shape)
    lengths: NDArray[np.int64] = np.exp(logs).round().clip(1, workload.max_tokens).astype(np.int64)
    return lengths


def drawn_step(workload: Workload, seed: int) -> ReplayStep:
    """A step of a second epoch, with what the first one showed."""
    before, now = drawn_lengths(workload, 2, seed)
    rows = (
        ReplayRow(
            row_uid=f"train-{number:06d}",
            num_prompt_tokens=workload.prompt_tokens,
            lengths=tuple(now[number].tolist()),
            known_lengths=tuple(sorted(before[number].tolist())),
        )
        for number in range(workload.num_rows)
    )
    return ReplayStep(rows=tuple(rows), max_tokens=workload.max_tokens)


def drawn_trace(workload: Workload, num_epochs: int, seed: int) -> Iterator[str]:
    """The same lengths as lines of a trace: one step with all rows per epoch. It says nothing of actors and times."""
    for epoch, lengths in enumerate(drawn_lengths(workload, num_epochs, seed)):
        step = TraceStep(
            step=epoch,
            group_size=workload.group_size,
            max_tokens=workload.max_tokens,
            max_num_sequences=workload.num_rows * workload.group_size,
            num_completions=lengths.size,
            profile=None,
            timings_s={},
            rounds=(),
        )
        yield json.dumps(asdict(step))
        for (number, sample), num_tokens in np.ndenumerate(lengths):
            row = TraceRow(
                step=epoch,
                round=0,
                row=f"train-{number:06d}",
                epoch=epoch,
                sample=sample,
                actor=None,
                estimated_tokens=None,
                num_prompt_tokens=workload.prompt_tokens,
                num_tokens=int(num_tokens),
                finish_reason="length" if num_tokens == workload.max_tokens else "stop",
                num_migrations=0,
                stays=(),
            )
            yield json.dumps(asdict(row))


def recorded_steps(lines: Iterable[str]) -> list[ReplayStep]:
    """The steps of a trace whose rows were sampled an epoch before, in order; of several rounds, all rows together.

    Raises ``TraceInvalid``.
    """
    seen: dict[str, tuple[int, ...]] = {}
    steps = []
    for step, completions in read_trace(lines):
        groups: dict[str, list[TraceRow]] = {}
        for completion in completions:
            groups.setdefault(completion.row, []).append(completion)
        rows = [
            ReplayRow(
                row_uid=uid,
                num_prompt_tokens=group[0].num_prompt_tokens,
                lengths=tuple(each.num_tokens for each in sorted(group, key=lambda each: each.sample)),
                known_lengths=seen.get(uid, ()),
            )
            for uid, group in groups.items()
            if len(group) == step.group_size
        ]
        if rows and all(row.known_lengths for row in rows):
            steps.append(ReplayStep(rows=tuple(rows), max_tokens=step.max_tokens))
        seen |= {row.row_uid: tuple(sorted(row.lengths)) for row in rows}
    return steps


def renamed(step: ReplayStep, prefix: str) -> ReplayStep:
    """The step with a prefix before the names of its rows."""
    return replace(step, rows=tuple(replace(row, row_uid=f"{prefix}{row.row_uid}") for row in step.rows))
