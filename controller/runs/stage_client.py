"""One typed call to a stage: sent, retried where that is safe, and checked against what was asked.

Every retry is safe, since a stage call is idempotent by its key: an attempt that did finish is answered from the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from controller.platforms.base import FunctionUnknown, FunctionUnreachable, Platform, PlatformReply
from controller.runs.errors import ContractBroken, RunLost, StageFailed, StageUnavailable
from controller.runs.stage_watch import watch_stage
from shared.contracts.call import CallKey, StageCall, StageReply
from shared.contracts.errors import Problem, StaleFence
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from shared.contracts.wire import Wire
from shared.service.ending import end_task

log = logging.getLogger(__name__)

OutT = TypeVar("OutT", bound=Wire)

PLATFORM_STATUSES = frozenset({429, 502, 503, 504})
"""Answers of the platform, not of the function: it had no replica, lost it, or cut the call."""
BUSY = 425
MAX_ATTEMPTS = 8
"""More than the deliveries after which a work item counts as poisoned, so that the item is blamed, not the stage."""
BUSY_WAIT_S = 0.5
MAX_BUSY_WAIT_S = 1.0
FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
DEADLINE_MARGIN_S = 30.0
"""Between a call's deadline and the platform's limit: the queue and a cold start count against the limit."""

Notify = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One answered call, as the ledger and the step's timings see it."""

    key: CallKey
    instance: str
    sent_at: float
    received_at: float
    started_at: float
    ended_at: float
    load_s: float
    compute_s: float
    replica_started_at: float
    replica_ready_at: float


class StageClient:
    """Calls stages through a platform for one owner of one run."""

    def __init__(
        self, platform: Platform, *, token: str, fence: int, timeout_s: float, notify: Notify, trace_id: str
    ) -> None:
        """``timeout_s`` is the platform's limit on one request; ``notify`` receives a line about every retry."""
        self._platform = platform
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._fence = fence
        self._timeout_s = timeout_s
        self._notify = notify
        self._trace_id = trace_id
        self.records: list[CallRecord] = []
        """Answered calls since the last ``drain_records``."""

    def drain_records(self) -> list[CallRecord]:
        """The answered calls since this was last asked."""
        records, self.records = self.records, []
        return records

    async def call(
        self,
        key: CallKey,
        inputs: Wire,
        outputs: type[OutT],
        *,
        policy: PolicyRef | None,
        threads: int = 1,
        beside: Stage | None = None,
    ) -> StageReply[OutT]:
        """The stage's reply, from a function that serves ``beside`` in the same process where there is one.

        Raises ``StageFailed``, ``StageUnavailable``, ``ContractBroken`` or ``RunLost``."""
        attempt, backoff_s, reason = 0, FIRST_BACKOFF_S, ""
        busy_since: float | None = None
        while attempt < MAX_ATTEMPTS:
            sent_at = self._platform.now()
            call = StageCall[Any](
                key=key,
                attempt=attempt,
                fence=self._fence,
                policy=policy,
                deadline_at=sent_at + max(1.0, self._timeout_s - DEADLINE_MARGIN_S),
                threads=threads,
                trace_id=self._trace_id,
                inputs=inputs,
            )
            try:
                answer = await self._invoke(key.stage, call.model_dump_json().encode(), beside)
            except FunctionUnknown as error:
                raise StageFailed(key.stage, "function_unknown", str(error)) from error
            except FunctionUnreachable as error:
                reason = str(error) or "no answer"
            else:
                if answer.status == 200:
                    return self._accept(call, answer, outputs, sent_at)
                problem = parse_problem(answer)
                if answer.status == BUSY:
                    # Whoever computes it has a deadline of its own, so a longer wait would wait for nothing.
                    busy_since = sent_at if busy_since is None else busy_since
                    if self._platform.now() - busy_since > self._timeout_s:
                        raise StageUnavailable(f"{key.stage}: no result in {self._timeout_s:g} s: {problem.message}")
                    await self._platform.sleep(min(MAX_BUSY_WAIT_S, problem.retry_after_s or BUSY_WAIT_S))
                    continue
                if problem.code == StaleFence.code:
                    raise RunLost(problem.message)
                if answer.status not in PLATFORM_STATUSES and not problem.retryable:
                    raise StageFailed(key.stage, problem.code, problem.message)
                reason = problem.message
            attempt, busy_since = attempt + 1, None
            await self._notify(f"{key}: attempt {attempt} of {MAX_ATTEMPTS} failed: {reason}")
            await self._platform.sleep(backoff_s)
            backoff_s = min(MAX_BACKOFF_S, 2 * backoff_s)
        raise StageUnavailable(f"{key.stage} gave no result in {MAX_ATTEMPTS} attempts: {reason}")

    async def _invoke(self, stage: Stage, body: bytes, beside: Stage | None) -> PlatformReply:
        """The answer, or why there is none while the stage has no replica."""
        invoking = asyncio.create_task(
            self._platform.invoke(
                stage, stage.route, body, headers=self._headers, timeout_s=self._timeout_s, beside=beside
            )
        )
        watching = asyncio.create_task(watch_stage(self._platform, stage, self._notify))
        try:
            await asyncio.wait({invoking, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not invoking.done():
                watching.result()
            return await invoking
        finally:
            await end_task(watching)
            await end_task(invoking)

    def _accept(
        self, call: StageCall[Any], answer: PlatformReply, outputs: type[OutT], sent_at: float
    ) -> StageReply[OutT]:
        try:
            reply = StageReply[outputs].model_validate_json(answer.body)  # type: ignore[valid-type]  # a type as value
        except ValidationError as error:
            raise ContractBroken(f"{call.key.stage} answered outside its contract: {error}") from error
        if reply.key != call.key:
            raise ContractBroken(f"{call.key.stage} was asked for {call.key} and answered for {reply.key}")
        served = reply.served.weights_digest
        if call.policy is not None and served != call.policy.digest:
            raise ContractBroken(
                f"{call.key.stage} served weights {served} where {call.policy.digest} were asked for: "
                "swap its image or its settings"
            )
        self.records.append(
            CallRecord(
                key=reply.key,
                instance=reply.served.instance,
                sent_at=sent_at,
                received_at=self._platform.now(),
                started_at=reply.timings.started_at,
                ended_at=reply.timings.ended_at,
                load_s=reply.timings.load_s,
                compute_s=reply.timings.compute_s,
                replica_started_at=reply.served.started_at,
                replica_ready_at=reply.served.ready_at,
            )
        )
        return reply


def parse_problem(answer: PlatformReply) -> Problem:
    """The problem that a failed call answers with, or one made from the platform's plain text."""
    try:
        return Problem.model_validate_json(answer.body)
    except ValidationError:
        text = answer.body.decode(errors="replace").strip()[:200]
        return Problem(code=f"http_{answer.status}", message=f"HTTP {answer.status} {text}".strip())
