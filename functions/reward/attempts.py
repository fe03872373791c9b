"""Which jobs still need an answer, whose fault a hang is, and when a row has failed. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from functions.reward.outcome import CompletionText, Outcome
from shared.contracts.completion import SampleId
from shared.contracts.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionJob:
    """One call of a user's function: one completion (verl's form) or all completions of a row (TRL's)."""

    prompt: Prompt
    completions: tuple[CompletionText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Every try of this job failed; ``cause`` is the last one's."""

    job: FunctionJob
    cause: str
    timed_out: bool


class Attempts:
    """The jobs of one reward call, worked on in rounds.

    A round sends what is open to one process. An answer closes a job; a failed try counts against it, and
    ``num_attempts`` of them make its row fail. A failed row is not worked on any further: with
    ``stop_at_first`` nothing is.

    Several jobs run at a time in the first round (``concurrency``; 1 for functions that are not async). When that
    process hangs, any of them can be to blame, so nothing is counted and the next rounds run one job at a time, where
    the oldest open job is the one that hangs.

    ``out_of_time`` is what a completion gets whose every try took too long; without it that is a failure.
    """

    def __init__(
        self,
        jobs: Sequence[FunctionJob],
        *,
        num_attempts: int,
        stop_at_first: bool,
        concurrency: int,
        out_of_time: Outcome | None = None,
    ) -> None:
        self.jobs = jobs
        self.concurrency = concurrency
        self.outcomes: dict[SampleId, Outcome] = {}
        self.failures: dict[str, Failure] = {}
        self._num_attempts = num_attempts
        self._stop_at_first = stop_at_first
        self._out_of_time = out_of_time
        self._failed_tries = [0] * len(jobs)
        self._answered: set[int] = set()
        self._round: dict[int, FunctionJob] = {}

    def is_open(self) -> bool:
        """Whether there is work left: jobs without an answer whose row has not failed."""
        return not self._is_over() and any(map(self._wanted, range(len(self.jobs))))

    def begin_round(self) -> list[int]:
        """Indexes of the open jobs, in order, which are all sent to a process now."""
        self._round = {index: job for index, job in enumerate(self.jobs) if self._wanted(index)}
        return list(self._round)

    def awaits_answer(self) -> bool:
        """Whether the round goes on."""
        return bool(self._round) and not self._is_over()

    def is_round_complete(self) -> bool:
        """Whether every job of the round was answered or failed for good, so that its process is free."""
        return not self._round

    def tries_left(self, index: int) -> int:
        """How often the job may still be tried."""
        return self._num_attempts - self._failed_tries[index]

    def answered(self, index: int, outcomes: Sequence[Outcome]) -> None:
        """The job has its rewards, one for each of its completions."""
        job = self._round.pop(index)
        self._answered.add(index)
        self.outcomes.update(zip((completion.id for completion in job.completions), outcomes, strict=True))

    def failed(self, index: int, cause: str, *, timed_out: bool) -> None:
        """One try of the job failed; the process goes on by itself."""
        job = self._round[index]
        self._failed_tries[index] += 1
        if self.tries_left(index):
            return
        if timed_out and self._out_of_time is not None:
            self.answered(index, [self._out_of_time] * len(job.completions))
        else:
            del self._round[index]
            self.failures.setdefault(job.prompt.row_uid, Failure(job=job, cause=cause, timed_out=timed_out))

    def process_ended(self, cause: str, *, timed_out: bool) -> None:
        """The process hung or died with jobs unanswered."""
        if self.concurrency > 1:
            self.concurrency = 1
        elif self._round:
            self.failed(next(iter(self._round)), cause, timed_out=timed_out)

    def _is_over(self) -> bool:
        return self._stop_at_first and bool(self.failures)

    def _wanted(self, index: int) -> bool:
        return index not in self._answered and self.jobs[index].prompt.row_uid not in self.failures
