"""The trace format: what is written is read back, and what is no trace is refused."""

import json
import zlib
from dataclasses import replace

import pytest

from controller.runs import trace
from controller.runs.trace import (
    TraceInvalid,
    TraceRound,
    TraceRow,
    TraceStay,
    TraceStep,
    decode_step,
    encode_step,
    parse_line,
    read_trace,
    trace_schema,
)

FIRST = TraceStay(
    shard=1,
    instance="rollout-a",
    started_at=1.7e9 + 0.12345678,
    first_token_at=None,
    ended_at=1.7e9 + 1.0,
    num_tokens=0,
)
LAST = TraceStay(
    shard=0,
    instance="rollout-b",
    started_at=1.7e9 + 1.25,
    first_token_at=1.7e9 + 1.5,
    ended_at=1.7e9 + 2.0,
    num_tokens=49,
)
ROW = TraceRow(
    step=3,
    round=0,
    row="train-000012",
    epoch=1,
    sample=0,
    actor=1,
    estimated_tokens=57.5,
    num_prompt_tokens=21,
    num_tokens=49,
    finish_reason="stop",
    num_migrations=1,
    stays=(FIRST, LAST),
)
ROUND = TraceRound(
    round=0,
    plan_digest="a" * 64,
    num_actors=2,
    num_groups=1,
    began_at=1.7e9,
    sampled_at=1.7e9 + 2.0,
    expected_time_s=1.9,
    expected_replica_s=None,
)
STEP = TraceStep(
    step=3,
    group_size=2,
    max_tokens=64,
    max_num_sequences=4,
    num_completions=2,
    profile={"base_s": 0.01, "per_context_token_s": 1.23456789012e-8, "kv_capacity_tokens": None},
    timings_s={"gen": 2.0, "step": 4.5},
    rounds=(ROUND,),
)


def lines_of(data: bytes) -> list[str]:
    return decode_step(data).decode().splitlines()


def test_a_step_comes_back_with_its_completions_in_order() -> None:
    rows = [replace(ROW, sample=1), replace(ROW, row="train-000002"), ROW]
    [(step, read)] = read_trace(lines_of(encode_step(STEP, rows)))
    assert [(row.row, row.sample) for row in read] == [("train-000002", 0), ("train-000012", 0), ("train-000012", 1)]
    assert step.rounds == STEP.rounds
    assert step.profile == {"base_s": 0.01, "per_context_token_s": 1.23456789e-8, "kv_capacity_tokens": None}
    assert read[1] == replace(ROW, stays=(replace(FIRST, started_at=1.7e9 + 0.1235), LAST))


def test_steps_follow_each_other_and_empty_lines_are_passed_over() -> None:
    second = encode_step(replace(STEP, step=4), [replace(ROW, step=4)])
    lines = [*lines_of(encode_step(STEP, [ROW])), "", *lines_of(second), "\n"]
    assert [(step.step, len(rows)) for step, rows in read_trace(lines)] == [(3, 1), (4, 1)]


def test_keys_of_later_versions_are_passed_over() -> None:
    line = json.dumps({**json.loads(lines_of(encode_step(STEP, [ROW]))[1]), "colour": "blue"})
    assert isinstance(parse_line(line), TraceRow)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not a line"),
        ("{", "not a line"),
        ("[]", "not a line"),
        ('{"kind": "step"}', "not a line"),
        ('{"kind": "weather", "step": 1}', "not a line"),
        (lines_of(encode_step(replace(STEP, format=2), []))[0], "format 2"),
    ],
)
def test_what_is_no_line_is_refused(line: str, reason: str) -> None:
    with pytest.raises(TraceInvalid, match=reason):
        parse_line(line)


def test_a_completion_outside_its_step_is_refused() -> None:
    header, row = lines_of(encode_step(STEP, [ROW]))
    with pytest.raises(TraceInvalid, match="outside its step"):
        list(read_trace([row]))
    with pytest.raises(TraceInvalid, match="step 3"):
        list(read_trace([lines_of(encode_step(replace(STEP, step=4), []))[0], row]))
    assert list(read_trace([header])) != []


@pytest.mark.parametrize("damage", [lambda data: data[:-4], lambda data: b"x" + data, lambda data: b""])
def test_damaged_bytes_are_refused(damage: object) -> None:
    assert callable(damage)
    with pytest.raises(TraceInvalid, match="damaged"):
        decode_step(damage(encode_step(STEP, [ROW])))


def test_bytes_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_STEP_BYTES", 1000)
    with pytest.raises(TraceInvalid, match="damaged"):
        decode_step(zlib.compress(b"0" * 2000))


def test_of_a_very_large_step_the_first_completions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_ROWS", 2)
    rows = [replace(ROW, sample=sample) for sample in (2, 1, 0)]
    [(step, read)] = read_trace(lines_of(encode_step(replace(STEP, num_completions=3), rows)))
    assert [row.sample for row in read] == [0, 1]
    assert step.num_completions == 3


def test_the_schema_names_every_key_of_both_kinds() -> None:
    definitions = trace_schema()["$defs"]
    for name, line in (("TraceStep", STEP), ("TraceRow", ROW), ("TraceStay", LAST), ("TraceRound", ROUND)):
        assert set(definitions[name]["properties"]) == set(type(line).__dataclass_fields__)
    required = set(TraceRow.__dataclass_fields__) - {"kind"}
    assert set(definitions["TraceRow"]["required"]) == required


def test_a_completion_takes_few_bytes() -> None:
    rows = [
        replace(ROW, row=f"train-{row:06d}", sample=sample, num_tokens=(row * 37 + sample * 11) % 512, stays=(LAST,))
        for row in range(64)
        for sample in range(8)
    ]
    assert len(encode_step(STEP, rows)) < 20 * len(rows)
