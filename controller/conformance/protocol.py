"""Checks of the stage protocol: keys, fences, claims. They need the store, and neither weights nor inputs."""

import json
from collections.abc import Sequence
from typing import Any

from controller.conformance.broken_calls import broken_call
from controller.conformance.checks import Check, CheckSkipped, expect
from controller.conformance.edge import expect_typed
from controller.conformance.subject import Answer, Subject
from controller.conformance.workshop import FENCE, Workshop
from shared.contracts.call import ServedBy, StageCall, StageReply, Timings
from shared.contracts.errors import CallBusy, CallConflict, InvalidInput, StageError, StaleFence
from shared.contracts.wire import Wire
from shared.store.base import Granted

NO_STORE = "needs the function's store: name it with --redis-url and --blob-url"
OTHER = "conformance"
"""The owner of claims that are made here, in place of another replica."""
CLAIM_S = 30.0


def protocol_checks(subject: Subject, workshop: Workshop | None) -> Sequence[Check]:
    """The checks, in order."""
    if workshop is None:
        return (Check("keeps the stage protocol", _skipped),)
    calls = _Calls(subject, workshop)
    return (
        Check("refuses an unknown field, and changes nothing", calls.unknown_field),
        Check("refuses another stage's key", calls.other_stage),
        Check("refuses inputs that are not there, and changes nothing", calls.missing_inputs),
        Check("refuses a lower fence", calls.lower_fence),
        Check("answers a stored result again", calls.stored),
        Check("refuses another body under a key", calls.conflict),
        Check("leaves a key that another replica computes", calls.busy),
        Check("answers when the deadline is over", calls.late),
    )


async def _skipped() -> str:
    raise CheckSkipped(NO_STORE)


class _Calls:
    """The checks share the function and the store."""

    def __init__(self, subject: Subject, workshop: Workshop) -> None:
        self._subject = subject
        self._workshop = workshop

    async def unknown_field(self) -> str:
        """A misspelt field never passes silently."""
        call = broken_call(self._workshop)
        body = json.loads(call.model_dump_json()) | {"surprise": 1}
        expect_refusal(await self._subject.post(json.dumps(body).encode()), InvalidInput)
        return await self._unchanged(call)

    async def other_stage(self) -> str:
        """The key says which stage is meant."""
        call = broken_call(self._workshop)
        body = json.loads(call.model_dump_json())
        body["key"]["stage"] = "prefill" if self._subject.stage != "prefill" else "reward"
        expect_refusal(await self._subject.post(json.dumps(body).encode()), InvalidInput)
        return "422"

    async def missing_inputs(self) -> str:
        """References that lead nowhere are the caller's mistake; the key is free again at once."""
        call = broken_call(self._workshop)
        answer = await self._subject.call(call)
        expect_typed(answer, "inputs that are not there")
        return f"{answer.status}, {await self._unchanged(call)}"

    async def lower_fence(self) -> str:
        """A controller that lost its run changes nothing any more."""
        call = broken_call(self._workshop, fence=FENCE - 1)
        expect_refusal(await self._subject.call(call), StaleFence)
        return await self._unchanged(call)

    async def stored(self) -> str:
        """What another replica has stored under this key is the answer, byte for byte, whatever the attempt."""
        call = broken_call(self._workshop)
        reply = await self._store_reply(call)
        again = call.model_copy(update={"attempt": 3, "threads": 2, "trace_id": "again"})
        answer = await self._subject.call(again)
        expect(
            (answer.status, answer.body) == (200, reply),
            f"another replica's result lies in the store, and the answer is {answer}: attempt, deadline, fence, "
            "threads and trace_id are no part of what makes two calls the same",
        )
        return f"{len(reply)} bytes"

    async def conflict(self) -> str:
        """A key stands for one body."""
        call = broken_call(self._workshop)
        await self._store_reply(call)
        other = broken_call(self._workshop, batch=call.key.batch)
        expect_refusal(await self._subject.call(other), CallConflict)
        return "409"

    async def busy(self) -> str:
        """While another replica has the claim, the caller is told to come back."""
        call = broken_call(self._workshop)
        await self._claim(call)
        answer = await self._subject.call(call)
        expect_refusal(answer, CallBusy)
        problem = answer.problem()
        expect(problem is not None and problem.retryable, f"its problem is not retryable: {answer}")
        await self._workshop.store.calls.release(call.key, owner=OTHER)
        return "425"

    async def late(self) -> str:
        """There is an answer: a result, ``continue`` or a problem."""
        call = broken_call(self._workshop).model_copy(update={"deadline_at": 1.0})
        answer = await self._subject.call(call)
        expect_typed(answer, "a call whose deadline is over")
        return str(answer.status)

    async def _claim(self, call: StageCall[Any]) -> bool:
        outcome = await self._workshop.store.calls.claim(
            call.key, digest=call.digest(), owner=OTHER, fence=FENCE, ttl_s=CLAIM_S
        )
        return isinstance(outcome, Granted)

    async def _store_reply(self, call: StageCall[Any]) -> bytes:
        reply = StageReply[Wire](
            key=call.key,
            outputs=Wire(),
            served=ServedBy(instance=OTHER, revision=OTHER, started_at=1.0, ready_at=1.0),
            timings=Timings(started_at=1.0, ended_at=1.0),
        )
        body = reply.model_dump_json().encode()
        await self._claim(call)
        await self._workshop.store.calls.commit(call.key, owner=OTHER, fence=FENCE, reply=body)
        return body

    async def _unchanged(self, call: StageCall[Any]) -> str:
        free = await self._claim(call)
        expect(free, "the call was refused, and its key is taken all the same: release the claim, store no result")
        await self._workshop.store.calls.release(call.key, owner=OTHER)
        return "its key is free"


def expect_refusal(answer: Answer, error: type[StageError]) -> None:
    """Raises ``CheckFailed`` unless the answer is this problem."""
    problem = answer.problem()
    expect(
        answer.status == error.status and problem is not None and problem.code == error.code,
        f"it answers {answer}, and not {error.status} with the code {error.code}",
    )
