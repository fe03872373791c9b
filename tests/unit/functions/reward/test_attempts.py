"""Who is blamed for a hang, when a row has failed, and what is still to do."""

import pytest

from functions.reward.attempts import Attempts, FunctionJob
from functions.reward.outcome import CompletionText, Rewarded
from shared.contracts.completion import SampleId
from shared.contracts.prompt import Prompt

ONE = Rewarded(reward=1.0)


def _attempts(*, num_attempts: int = 2, stop_at_first: bool = False, concurrency: int = 1) -> Attempts:
    """Rows a and b with two samples each: jobs 0, 1 and 2, 3."""
    jobs = [
        FunctionJob(
            prompt=Prompt(row_uid=row, token_ids=(1,), text="?"),
            completions=(CompletionText(SampleId(row, sample), "#1", (1,)),),
        )
        for row in "ab"
        for sample in range(2)
    ]
    return Attempts(jobs, num_attempts=num_attempts, stop_at_first=stop_at_first, concurrency=concurrency)


def test_answers_in_any_order_end_the_work() -> None:
    attempts = _attempts()
    assert attempts.begin_round() == [0, 1, 2, 3]
    for index in (2, 0, 3):
        attempts.answered(index, [ONE])
        assert attempts.awaits_answer()
    attempts.answered(1, [ONE])
    assert not attempts.awaits_answer()
    assert attempts.is_round_complete()
    assert not attempts.is_open()
    assert sorted(map(str, attempts.outcomes)) == ["a:0", "a:1", "b:0", "b:1"]


def test_a_hang_counts_against_the_oldest_open_job_alone() -> None:
    attempts = _attempts()
    attempts.begin_round()
    attempts.answered(0, [ONE])
    attempts.process_ended("hang", timed_out=True)
    assert [attempts.tries_left(index) for index in range(4)] == [2, 1, 2, 2]
    assert attempts.begin_round() == [1, 2, 3]
    attempts.process_ended("hang", timed_out=True)
    failure = attempts.failures["a"]
    assert failure.job is attempts.jobs[1]
    assert failure.timed_out


def test_a_failed_row_is_left_alone_and_the_others_go_on() -> None:
    attempts = _attempts(num_attempts=1)
    attempts.begin_round()
    attempts.failed(0, "ValueError: boom", timed_out=False)
    assert attempts.failures["a"].cause == "ValueError: boom"
    assert attempts.awaits_answer()
    attempts.process_ended("hang", timed_out=True)  # In job 1, of the row that has failed already.
    assert attempts.failures["a"].cause == "ValueError: boom"
    assert attempts.begin_round() == [2, 3]


def test_the_first_failed_row_ends_everything_where_one_is_enough() -> None:
    attempts = _attempts(num_attempts=1, stop_at_first=True)
    attempts.begin_round()
    attempts.failed(0, "boom", timed_out=False)
    assert not attempts.awaits_answer()
    assert not attempts.is_round_complete()
    assert not attempts.is_open()


def test_a_hang_among_concurrent_jobs_is_nobodys_until_they_run_one_by_one() -> None:
    attempts = _attempts(num_attempts=1, concurrency=32)
    attempts.begin_round()
    attempts.process_ended("hang", timed_out=True)
    assert not attempts.failures
    assert attempts.concurrency == 1
    attempts.begin_round()
    attempts.answered(0, [ONE])
    attempts.process_ended("hang", timed_out=True)
    assert attempts.failures["a"].job is attempts.jobs[1]


def test_a_wrong_number_of_outcomes_is_an_error() -> None:
    attempts = _attempts()
    attempts.begin_round()
    with pytest.raises(ValueError, match="zip"):
        attempts.answered(0, [ONE, ONE])
