"""The stage protocol, once for all stages (DESIGN, rules 1 and 4).

claim the key ─▶ compute, with a heartbeat ─▶ commit the reply ─▶ answer
    │ stored: answer it     │ caller gone: 409, claim free again    │ an earlier commit won: answer that one
    │ busy: 425             │ claim lost: 425, come back            │ claim lost: 425, come back
    └ conflict, stale: 409  │ error: its status, claim free again   └ stale fence: 409
"""

import asyncio
import contextlib
import os
import time
from typing import Any

from shared.contracts.call import ServedBy, StageCall, StageReply, Timings
from shared.contracts.errors import (
    CallBusy,
    CallConflict,
    Cancelled,
    StageError,
    StaleFence,
    StoreRefused,
    StoreUnavailable,
)
from shared.service.beside import beside
from shared.service.handler import CallContext, Outcome, StageHandler
from shared.service.replica import Replica
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.base import Busy, Conflict, Granted, Stale, Stored

CLAIM_TTL_S = 6.0
"""How long a dead replica's claim keeps others out. Three missed heartbeats."""
HEARTBEAT_S = 2.0
RELEASE_TIMEOUT_S = 1.0
DEADLINE_MARGIN_S = 2.0
"""Left for storing and sending the reply."""
MIN_WORK_S = 5.0
"""Time to work for a call that comes late, whatever its deadline says: it cost somebody a cold start, and answering
``continue`` without progress would go on for ever. The caller's margin before the platform's limit covers it."""

CLAIM_LOST = "another replica, or a newer owner of the run, took it over"


class StageProtocol:
    """Serves calls of one handler in one replica."""

    def __init__(self, handler: StageHandler[Any, Any], replica: Replica) -> None:
        self._handler = handler
        self._replica = replica
        self._calls = replica.store.calls
        self._reply_type = StageReply[handler.outputs]  # type: ignore[name-defined]  # a type that is a value here

    async def serve(self, call: StageCall[Any], stop: StopFlag) -> bytes:
        """The JSON of the call's reply. Raises ``StageError``."""
        owner = f"{self._replica.instance}/{os.urandom(6).hex()}"
        claim = await self._calls.claim(
            call.key, digest=call.digest(), owner=owner, fence=call.fence, ttl_s=CLAIM_TTL_S
        )
        if isinstance(claim, Stored):
            return claim.reply
        if not isinstance(claim, Granted):
            raise _refusal(call, claim)
        try:
            # A beat may see the committed call as no longer claimed, so the heart beats until after the commit.
            async with beside(self._heartbeat(call, owner, stop)):
                reply = (await self._work(call, owner, stop)).model_dump_json().encode()
                commit = await self._calls.commit(call.key, owner=owner, fence=call.fence, reply=reply)
        except BaseException as error:
            await self._release(call, owner)
            if isinstance(error, Cancelled) and stop.reason == CLAIM_LOST:
                raise CallBusy(f"{call.key} was stopped: {CLAIM_LOST}: ask again") from error
            raise
        match commit:
            case Granted():
                return reply
            case Stored(earlier):
                return earlier
            case _:
                raise _refusal(call, commit)

    async def _release(self, call: StageCall[Any], owner: str) -> None:
        """Let others take the key at once. A store that is lost is not waited for: the claim ends by itself."""
        with contextlib.suppress(TimeoutError, StoreUnavailable, StoreRefused):
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await self._calls.release(call.key, owner=owner)

    async def _work(self, call: StageCall[Any], owner: str, stop: StopFlag) -> StageReply[Any]:
        arrived = time.monotonic()
        watch = Stopwatch()
        async with contextlib.AsyncExitStack() as admission:
            if self._handler.exclusive:
                async with stop.interrupting():
                    await admission.enter_async_context(self._replica.gate)
            queue_s, started_at = time.monotonic() - arrived, time.time()
            context = CallContext(
                store=self._replica.store,
                blobs=self._replica.blobs,
                owner=owner,
                instance=self._replica.instance,
                deadline_at=max(call.deadline_at - DEADLINE_MARGIN_S, started_at + MIN_WORK_S),
                stop=stop,
                watch=watch,
                executor=self._replica.executor,
            )
            outcome = await self._handler.handle(call, context)
        timings = Timings(
            started_at=started_at,
            ended_at=time.time(),
            queue_s=queue_s,
            load_s=watch.load_s,
            compute_s=watch.compute_s,
            store_s=watch.store_s,
        )
        return self._reply(call, outcome, timings)

    def _reply(self, call: StageCall[Any], outcome: Outcome[Any], timings: Timings) -> StageReply[Any]:
        return self._reply_type(
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
            timings=timings,
        )

    async def _heartbeat(self, call: StageCall[Any], owner: str, stop: StopFlag) -> None:
        held = True
        while held:
            await asyncio.sleep(HEARTBEAT_S)
            # While Redis restarts nobody can take the claim either; the commit decides.
            with contextlib.suppress(StoreUnavailable, StoreRefused):
                held = await self._calls.renew(call.key, owner=owner, fence=call.fence, ttl_s=CLAIM_TTL_S)
        stop.set(CLAIM_LOST)


def _refusal(call: StageCall[Any], outcome: Busy | Conflict | Stale) -> StageError:
    match outcome:
        case Busy(retry_after_s):
            return CallBusy(f"another replica computes {call.key}: ask again", retry_after_s=retry_after_s)
        case Conflict():
            return CallConflict(f"{call.key} stands for a call with another body: use another key")
        case Stale(fence):
            return StaleFence(f"run {call.key.run} has a newer owner with fence {fence}", fence=fence)
