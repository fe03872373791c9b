"""The stage protocol, once for all stages (DESIGN, rules 1 and 4).

claim the key ─▶ compute, with a heartbeat ─▶ commit the reply ─▶ answer
    │ stored: answer it     │ claim lost, caller gone: stop          │ an earlier commit won: answer that one
    └ busy 425, conflict or stale fence 409
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from shared.contracts.call import ServedBy, StageCall, StageReply, Timings
from shared.contracts.errors import CallBusy, CallConflict, StaleFence, StoreUnavailable
from shared.service.handler import CallContext, Outcome, StageHandler, StopFlag, Stopwatch
from shared.store.base import Busy, ClaimOutcome, CommitOutcome, Conflict, Granted, Stale, Stored

CLAIM_TTL_S = 6.0
"""How long a dead replica's claim keeps others out. Three missed heartbeats."""
HEARTBEAT_S = 2.0
DEADLINE_MARGIN_S = 2.0
"""Left for storing and sending the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The process that serves, as it shows in every reply."""

    instance: str
    revision: str
    started_at: float
    ready_at: float


class StageProtocol:
    """Serves calls of one handler. ``gate`` admits one exclusive call at a time in this process."""

    def __init__(
        self, handler: StageHandler[Any, Any], replica: Replica, base: CallContext, gate: asyncio.Lock
    ) -> None:
        self._handler = handler
        self._replica = replica
        self._base = base
        self._gate = gate

    async def serve(self, call: StageCall[Any], stop: StopFlag) -> bytes:
        """The JSON of the call's reply. Raises ``StageError``."""
        owner = f"{self._replica.instance}/{os.urandom(6).hex()}"
        calls = self._base.store.calls
        outcome = await calls.claim(call.key, digest=call.digest(), owner=owner, fence=call.fence, ttl_s=CLAIM_TTL_S)
        if isinstance(outcome, Stored):
            return outcome.reply
        if not isinstance(outcome, Granted):
            raise _refusal(call, outcome)
        committed = False
        try:
            async with self._heartbeat(call, owner, stop):
                reply = (await self._compute(call, owner, stop)).model_dump_json().encode()
                # A heartbeat may see the committed call as no longer claimed, so it ends after the commit only.
                ended = await calls.commit(call.key, owner=owner, fence=call.fence, reply=reply)
            committed = True
        finally:
            if not committed:
                with contextlib.suppress(StoreUnavailable):
                    await calls.release(call.key, owner=owner)
        if isinstance(ended, Stored):
            return ended.reply
        if not isinstance(ended, Granted):
            raise _refusal(call, ended)
        return reply

    async def _compute(self, call: StageCall[Any], owner: str, stop: StopFlag) -> StageReply[Any]:
        arrived_at = time.time()
        gate = self._gate if self._handler.exclusive else contextlib.nullcontext()
        async with gate:
            started_at = time.time()
            stop.raise_if_set()
            watch = Stopwatch()
            context = CallContext(
                store=self._base.store,
                blobs=self._base.blobs,
                owner=owner,
                instance=self._replica.instance,
                deadline_at=call.deadline_at - DEADLINE_MARGIN_S,
                stop=stop,
                watch=watch,
                executor=self._base.executor,
            )
            outcome: Outcome[Any] = await self._handler.handle(call, context)
        return StageReply[self._handler.outputs](  # type: ignore[name-defined]  # the handler's type is a value here
            key=call.key,
            status=outcome.status,
            outputs=outcome.outputs,
            metrics=outcome.metrics,
            served=ServedBy(
                instance=self._replica.instance,
                revision=self._replica.revision,
                started_at=self._replica.started_at,
                ready_at=self._replica.ready_at,
                policy_version=outcome.policy_version,
                weights_digest=outcome.weights_digest,
            ),
            timings=Timings(
                started_at=started_at,
                ended_at=time.time(),
                queue_s=started_at - arrived_at,
                load_s=watch.load_s,
                compute_s=watch.compute_s,
                store_s=watch.store_s,
            ),
        )

    @contextlib.asynccontextmanager
    async def _heartbeat(self, call: StageCall[Any], owner: str, stop: StopFlag) -> AsyncIterator[None]:
        async def beat() -> None:
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                # While Redis restarts nobody can take the claim either; the commit decides.
                with contextlib.suppress(StoreUnavailable):
                    if not await self._base.store.calls.renew(
                        call.key, owner=owner, fence=call.fence, ttl_s=CLAIM_TTL_S
                    ):
                        stop.set("another replica or a newer owner of the run took it over")
                        return

        task = asyncio.create_task(beat(), name=f"heartbeat {call.key}")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _refusal(call: StageCall[Any], outcome: ClaimOutcome | CommitOutcome) -> Exception:
    match outcome:
        case Busy(retry_after_s):
            return CallBusy(f"another replica computes {call.key}: ask again", retry_after_s=retry_after_s)
        case Conflict():
            return CallConflict(f"{call.key} stands for a call with another body: use another key")
        case Stale(fence):
            return StaleFence(f"run {call.key.run} has a newer owner with fence {fence}", fence=fence)
        case _:
            raise AssertionError(f"{outcome} is not a refusal")
