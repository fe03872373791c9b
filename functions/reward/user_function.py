"""Rewards by a function in a child process: a user's, with verl's or TRL's signature, or a rule that may hang."""

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from functions.reward.attempts import Attempts, Failure, FunctionJob
from functions.reward.outcome import Asked, NotApplicable, Outcome, Rewarded, Scored
from functions.reward.signatures import Form, Job
from functions.reward.user_pool import UserPool
from functions.reward.user_process import UserCode, UserProcess, WorkerEnded, worker_environment
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed, RewardTimeout
from shared.contracts.reward import FunctionReward, RewardInputs, RuleReward
from shared.service.together import together

_ASYNC_CONCURRENCY = 32
# An async function is first asked to stop at its limit; only one that blocks its loop is killed.
_ASYNC_GRACE_S = 2.0
_PROMPT_EXCERPT_CHARS = 80
_RULE_PROCESSES = 4
# Fewer completions are not worth the start of another process.
_MIN_RULE_SHARE = 64
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class UserFunctions:
    """Runs user reward functions. One for a replica; ``close`` ends its child processes.

    ``roots`` are the folders that reward files may come from. ``environ`` is the environment of this process; only
    what a Python process needs is passed on.

    Time-outs: ``timeout_s`` is for one completion. verl's form is called for each completion; TRL's form is called
    once for each row with that row's completions, and has ``timeout_s`` times their number. Async functions run up to
    32 calls at a time, each with its own limit.
    """

    def __init__(
        self,
        *,
        roots: Sequence[Path],
        environ: Mapping[str, str],
        load_limit_s: float = 60.0,
        max_idle: int = 4,
    ) -> None:
        self._roots = roots
        self._pool = UserPool(worker_environment(environ), load_limit_s=load_limit_s, max_idle=max_idle)

    async def score(self, asked: Asked, inputs: RewardInputs, reward: FunctionReward) -> Scored:
        """Outcomes by sample, and the failed rows.

        With ``on_failure="fail"`` the first failed row ends the call, so the outcomes are then incomplete.
        Raises InvalidInput if the function cannot be found, loaded or called with what the rows have.
        """
        code = await asyncio.to_thread(find_code, reward, self._roots)
        return await self._score(code, asked, inputs, inputs.num_attempts, None)

    async def score_by_rule(self, asked: Asked, inputs: RewardInputs, reward: RuleReward) -> Scored:
        """The same by a built-in rule that may take for ever. It is pure, so it is tried once, in several processes."""
        code = UserCode(reward.model_dump_json(), reward.name, "", source="rule")
        on_timeout = getattr(reward.parameters, "on_timeout", "fail")
        out_of_time = Rewarded(reward=0.0) if on_timeout == "wrong" else None
        size = max(_MIN_RULE_SHARE, -(-len(asked) // _RULE_PROCESSES))
        shares = [asked[start : start + size] for start in range(0, len(asked), size)]
        scored = await together(self._score(code, share, inputs, 1, out_of_time) for share in shares)
        outcomes: dict[SampleId, Outcome] = {}
        failures: dict[str, RewardFailed] = {}
        for share_outcomes, share_failures in scored:
            outcomes |= share_outcomes
            failures |= share_failures
        # The rule's own name is its part.
        bare = {
            id_: replace(outcome, parts={}) if isinstance(outcome, Rewarded) else outcome
            for id_, outcome in outcomes.items()
        }
        return bare, failures

    async def _score(
        self, code: UserCode, asked: Asked, inputs: RewardInputs, num_attempts: int, out_of_time: Outcome | None
    ) -> Scored:
        attempts: Attempts | None = None
        while attempts is None or attempts.is_open():
            try:
                async with self._pool.process(code) as process:
                    attempts = attempts or Attempts(
                        _jobs(asked, process.form),
                        num_attempts=num_attempts,
                        stop_at_first=inputs.on_failure == "fail",
                        concurrency=_ASYNC_CONCURRENCY if process.is_async else 1,
                        out_of_time=out_of_time,
                    )
                    await _run_round(process, attempts, inputs.timeout_s, code)
            except WorkerEnded as ended:
                assert attempts is not None
                attempts.process_ended(ended.cause, timed_out=ended.timed_out)
        errors = {row_uid: _reward_error(failure, code, num_attempts) for row_uid, failure in attempts.failures.items()}
        return attempts.outcomes, errors

    async def close(self) -> None:
        """End the child processes."""
        await self._pool.close()


def find_code(reward: FunctionReward, roots: Sequence[Path]) -> UserCode:
    """The file or module of a user's function. Raises InvalidInput.

    A module is one that is installed beside the function, as in an image: it is looked for by its process.
    """
    if reward.source == "file":
        return find_file(reward, roots)
    if not _MODULE.fullmatch(reward.path):
        raise InvalidInput(f"The reward module {reward.path!r} is not a dotted name such as package.module.")
    return UserCode(reward.path, reward.name, "", source="module")


def find_file(reward: FunctionReward, roots: Sequence[Path]) -> UserCode:
    """The file of a user's function. Raises InvalidInput unless it lies, links resolved, under one of ``roots``."""
    resolved_roots = [root.resolve() for root in roots]
    try:
        # An absolute path stays itself when joined.
        candidates = [(root / reward.path).resolve() for root in resolved_roots]
    except (ValueError, OSError, RuntimeError) as error:
        raise InvalidInput(f"The reward file {reward.path!r} is not a path: {error}") from error
    inside = [path for path in candidates if any(path.is_relative_to(root) for root in resolved_roots)]
    if not inside:
        raise InvalidInput(
            f"The reward file {reward.path!r} is outside the folders that reward functions may come from: "
            f"{', '.join(map(str, roots)) or 'none is configured'}. Move it there."
        )
    for path in inside:
        if path.suffix == ".py" and path.is_file():
            return UserCode(path, reward.name, hashlib.sha256(path.read_bytes()).hexdigest())
    raise InvalidInput(f"There is no Python file {reward.path!r} under {', '.join(map(str, roots))}.")


def _jobs(asked: Asked, form: Form) -> list[FunctionJob]:
    if form == "per_completion":
        return [FunctionJob(prompt=prompt, completions=(completion,)) for prompt, completion in asked]
    rows = [list(row) for _, row in groupby(asked, key=lambda pair: pair[0].row_uid)]
    return [FunctionJob(prompt=row[0][0], completions=tuple(completion for _, completion in row)) for row in rows]


async def _run_round(process: UserProcess, attempts: Attempts, timeout_s: float, code: UserCode) -> None:
    """Send what is open and take the answers. Raises WorkerEnded if the process hangs or dies on the way."""
    indexes = attempts.begin_round()
    jobs = [(attempts.jobs[index], attempts.tries_left(index)) for index in indexes]
    # In a thread: long completions take a while to encode.
    lines = await asyncio.to_thread(_encode, jobs, process)
    limit_s = timeout_s * max(len(job.completions) for job, _ in jobs)
    process.send_round(lines, concurrency=attempts.concurrency, limit_s=limit_s)
    grace_s = _ASYNC_GRACE_S if process.is_async else 0.0
    # A job starts when the one before it is answered, so silence for its limit is a hang.
    while attempts.awaits_answer():
        answer = await process.receive(limit_s, grace_s=grace_s)
        index = indexes[answer["index"]]
        if "scores" in answer:
            attempts.answered(index, [_outcome(score) for score in answer["scores"]])
        elif answer["kind"] == "unusable_row":
            row_uid = attempts.jobs[index].prompt.row_uid
            raise InvalidInput(f"{code} cannot score row {row_uid}: {answer['cause']}", row_uid=row_uid)
        else:
            attempts.failed(index, answer["cause"], timed_out=answer["kind"] == "timeout")
    if not attempts.is_round_complete():
        # Failed early: the process still works on jobs that nobody waits for.
        process.kill()


def _encode(jobs: Sequence[tuple[FunctionJob, int]], process: UserProcess) -> list[bytes]:
    return [json.dumps(_wire_job(job, tries, process)).encode() + b"\n" for job, tries in jobs]


def _wire_job(job: FunctionJob, tries: int, process: UserProcess) -> Job:
    prompt = job.prompt
    sees_prompt = process.form == "per_group"
    return {
        "prompt": prompt.text if sees_prompt else "",
        "messages": list(prompt.messages) if sees_prompt and prompt.messages is not None else None,
        "data_source": prompt.data_source,
        "ground_truth": prompt.ground_truth,
        "columns": prompt.columns,
        "completions": [completion.text for completion in job.completions],
        "completion_ids": (
            [[int(token) for token in completion.token_ids] for completion in job.completions]
            if process.takes_token_ids
            else None
        ),
        "attempts": tries,
    }


def _outcome(score: dict[str, Any]) -> Outcome:
    if score["reward"] is None:
        return NotApplicable()
    return Rewarded(reward=score["reward"], parts=score["parts"], answer=score["answer"])


def _reward_error(failure: Failure, code: UserCode, num_attempts: int) -> RewardFailed:
    """The typed error, naming row, sample (all of the row's for TRL's form) and prompt."""
    prompt, completions = failure.job.prompt, failure.job.completions
    sample = completions[0].id.sample if len(completions) == 1 else None
    which = f"sample {sample}" if sample is not None else f"its {len(completions)} completions"
    error = RewardTimeout if failure.timed_out else RewardFailed
    return error(
        f"{code} failed on row {prompt.row_uid}, {which}, in each of {num_attempts} "
        f"attempts: {failure.cause}. The prompt is {_excerpt(prompt.text)}. Mend the function, raise the limit, "
        f'or leave such groups out with on_failure="drop_group".',
        row_uid=prompt.row_uid,
        sample=sample,
        cause=failure.cause,
        num_attempts=num_attempts,
    )


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= _PROMPT_EXCERPT_CHARS else f"{text[:_PROMPT_EXCERPT_CHARS]}...")
