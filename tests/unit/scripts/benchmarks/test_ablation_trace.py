"""Drawn lengths move between epochs as measured ones do, and traces are read as they were written."""

import numpy as np

from controller.runs.trace import TraceRow, parse_line
from scripts.benchmarks.ablation_trace import (
    Workload,
    drawn_lengths,
    drawn_step,
    drawn_trace,
    recorded_steps,
)

GSM8K = Workload(num_rows=4000, group_size=8, prompt_tokens=100, max_tokens=2048)
SMALL = Workload(num_rows=3, group_size=2, prompt_tokens=5, max_tokens=400)


def test_rows_move_between_epochs_as_the_paper_measured() -> None:
    before, now = drawn_lengths(GSM8K, 2, seed=0).mean(axis=2)
    moved = np.abs(now - before)
    assert 0.65 < (moved <= 50).mean() < 0.75
    assert 0.87 < (moved <= 100).mean() < 0.93


def test_lengths_are_skewed_and_correlate_within_a_group() -> None:
    lengths = drawn_lengths(GSM8K, 1, seed=0)[0]
    assert lengths.mean() > 1.15 * np.median(lengths)
    logs = np.log(lengths)
    within = logs.var(axis=1, ddof=1).mean()
    assert within < 0.35 * logs.var()


def test_the_same_seed_draws_the_same_and_another_one_other_lengths() -> None:
    assert drawn_step(SMALL, 1) == drawn_step(SMALL, 1)
    assert drawn_step(SMALL, 1) != drawn_step(SMALL, 2)


def test_no_length_is_beyond_the_most_or_empty() -> None:
    lengths = drawn_lengths(Workload(num_rows=500, group_size=8, prompt_tokens=1, max_tokens=100), 1, seed=0)
    assert lengths.min() >= 1
    assert lengths.max() == 100


def test_a_written_trace_is_read_as_the_step_of_its_second_epoch() -> None:
    [step] = recorded_steps(drawn_trace(SMALL, 2, seed=1))
    drawn = drawn_step(SMALL, 1)
    assert step.rows == drawn.rows
    assert step.max_tokens == drawn.max_tokens


def test_lines_are_those_of_a_run() -> None:
    lines = [parse_line(line) for line in drawn_trace(SMALL, 1, seed=0)]
    assert len(lines) == 1 + 3 * 2
    assert all(isinstance(line, TraceRow) for line in lines[1:])


def test_a_step_whose_rows_are_new_is_not_replayed() -> None:
    assert recorded_steps(drawn_trace(SMALL, 1, seed=0)) == []
