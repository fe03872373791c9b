"""A trace of real generation: what a simulator needs to replay a run under other policies.

Two real runs never generate the same, so policies are compared on recorded lengths (RLHFless, arXiv 2602.22718).
A trace is JSON lines. Per step comes one line of kind ``step`` and then one of kind ``completion`` for each completion
that the step sampled, sorted by round, row, epoch and sample. Times are Unix seconds, lengths are tokens. Readers pass
over keys that they do not know, so that later versions may add some.

    {"kind": "step", "format": 1, "step": 3, "group_size": 8, ..., "rounds": [{"round": 0, "num_actors": 2, ...}]}
    {"kind": "completion", "step": 3, "round": 0, "row": "train-000012", "epoch": 1, "sample": 0, "actor": 1,
     "estimated_tokens": 57.0, "num_prompt_tokens": 21, "num_tokens": 49, "finish_reason": "stop", "num_migrations": 1,
     "stays": [{"shard": 1, "instance": "rollout-00001-a", "started_at": 5.0, "first_token_at": 5.1, "ended_at": 6.0,
                "num_tokens": 30}, {"shard": 0, "instance": "rollout-00001-b", ...}]}

Stored, the lines of one step are compressed together: some 40 bytes for a completion.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

FORMAT = 1
MAX_ROWS = 2**16
"""Completions of one step that are kept; of a larger step the first ones."""
MAX_STEP_BYTES = 2**27
"""Lines of one step, decompressed: more than so many completions have. What is longer is damaged."""
UNIX_TIMES = 1e6
"""Larger numbers are times: no step has so many seconds."""


class TraceInvalid(ValueError):
    """A line is no line of a trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStay:
    """The time of one completion in one actor's engine."""

    shard: int | None
    """Which of the round's worker calls, numbered as the plan's actors; ``None`` where nobody said."""
    instance: str
    """Its replica."""
    started_at: float
    first_token_at: float | None
    """When the first token of this stay was sampled; ``None`` where it left before, or where nobody said."""
    ended_at: float
    """When it was finished, or left for another actor."""
    num_tokens: int
    """Tokens after the prompt at the end of the stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One completion."""

    kind: Literal["completion"] = "completion"
    step: int
    round: int
    """Sampling round within the step; 0 unless groups without a signal are replaced."""
    row: str
    """The row of the data set, the same in every epoch."""
    epoch: int
    sample: int
    """Which completion of its group: 0 to ``group_size`` - 1."""
    actor: int | None
    """Which actor the plan gave the group to, from 0; ``None`` where any actor may have taken it."""
    estimated_tokens: float | None
    """The length that the plan expected of the group's completions, in the mean."""
    num_prompt_tokens: int
    num_tokens: int
    """All tokens after the prompt."""
    finish_reason: Literal["stop", "length"]
    num_migrations: int
    """How often it moved to another actor before it was finished."""
    stays: tuple[TraceStay, ...]
    """Where it was decoded, in order; the last one finished it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRound:
    """One sampling round of a step."""

    round: int
    plan_digest: str
    """SHA-256 of the plan that it followed."""
    num_actors: int
    num_groups: int
    began_at: float
    """When its prompts were drawn."""
    sampled_at: float
    """When its last completion was there."""
    expected_time_s: float | None
    """What the plan expected from the first call to the last completion; ``None`` where it expected nothing."""
    expected_replica_s: float | None
    """The plan's expected cost: the time of all actors together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One step, and what was known when it was planned."""

    kind: Literal["step"] = "step"
    format: int = FORMAT
    step: int
    group_size: int
    max_tokens: int
    """The most tokens that a completion may have."""
    max_num_sequences: int
    """The most completions that an actor decodes at once."""
    num_completions: int
    """Completions that the step sampled. The trace has fewer of a step with more than ``MAX_ROWS``."""
    profile: Mapping[str, float | None] | None
    """Decode profile that the plan used, by the fields of ``controller.scheduling.decode_profile.DecodeProfile``;
    ``None`` before anything was measured."""
    timings_s: Mapping[str, float]
    """Seconds of each part of the step: ``gen``, ``reward``, ``update_actor``, ... and the whole, ``step``."""
    rounds: tuple[TraceRound, ...]


TraceLine = TraceStep | TraceRow
LINE: TypeAdapter[TraceLine] = TypeAdapter(TraceLine)


def trace_schema() -> dict[str, Any]:
    """JSON schema of one line."""
    return LINE.json_schema()


def parse_line(line: str) -> TraceLine:
    """One line of a trace. Raises ``TraceInvalid`` for what is none, and for a later format."""
    try:
        found = LINE.validate_json(line)
    except ValidationError as error:
        raise TraceInvalid(f"not a line of a trace: {error.errors()[0]['msg']} in {line[:80]!r}") from error
    if isinstance(found, TraceStep) and found.format != FORMAT:
        raise TraceInvalid(f"the trace has format {found.format}, and only {FORMAT} can be read")
    return found


def read_trace(lines: Iterable[str]) -> Iterator[tuple[TraceStep, tuple[TraceRow, ...]]]:
    """The steps of a trace, each with its completions. Empty lines are passed over. Raises ``TraceInvalid``."""
    step: TraceStep | None = None
    rows: list[TraceRow] = []
    for line in lines:
        if not line.strip():
            continue
        found = parse_line(line)
        if isinstance(found, TraceStep):
            if step is not None:
                yield step, tuple(rows)
            step, rows = found, []
        elif step is None or found.step != step.step:
            raise TraceInvalid(f"a completion of step {found.step} stands outside its step")
        else:
            rows.append(found)
    if step is not None:
        yield step, tuple(rows)


def encode_step(step: TraceStep, rows: Sequence[TraceRow]) -> bytes:
    """One step with its completions, compressed for the store: a second or more for the largest steps."""
    ordered = sorted(rows, key=lambda row: (row.round, row.row, row.epoch, row.sample))[:MAX_ROWS]
    lines: list[TraceLine] = [step, *ordered]
    texts = (json.dumps(_rounded(LINE.dump_python(line)), separators=(",", ":")) for line in lines)
    return zlib.compress("".join(f"{text}\n" for text in texts).encode(), 6)


def decode_step(data: bytes) -> bytes:
    """The JSON lines of one step. Raises ``TraceInvalid`` for damaged bytes."""
    reader = zlib.decompressobj()
    try:
        lines = reader.decompress(data, MAX_STEP_BYTES)
    except zlib.error as error:
        raise TraceInvalid(f"a stored trace is damaged: {error}") from error
    if not reader.eof:
        raise TraceInvalid("a stored trace is damaged: it does not end")
    return lines


def _rounded(value: Any) -> Any:
    """Nine digits, and Unix times to a tenth of a millisecond: what is measured is no finer, and it compresses."""
    match value:
        case float():
            return round(value, 4) if abs(value) >= UNIX_TIMES else float(f"{value:.9g}")
        case dict():
            return {name: _rounded(part) for name, part in value.items()}
        case list() | tuple():
            return [_rounded(part) for part in value]
    return value
