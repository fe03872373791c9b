"""The stage protocol on a store in memory: who computes, who is told to come back, and whose result counts."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from shared.contracts.call import StageCall, StageReply
from shared.contracts.errors import (
    CallBusy,
    CallConflict,
    Cancelled,
    InvalidInput,
    StaleFence,
    StoreUnavailable,
)
from shared.service import protocol
from shared.service.handler import CallContext, Outcome
from shared.service.protocol import StageProtocol
from shared.service.stop_flag import StopFlag
from shared.store.base import CallStore, Granted
from tests.unit.shared.service.stage_fakes import (
    EchoHandler,
    EchoInputs,
    EchoOutputs,
    World,
    echo_call,
)

Reply = StageReply[EchoOutputs]


def parsed(reply: bytes) -> StageReply[EchoOutputs]:
    return Reply.model_validate_json(reply)


async def turns(number: int = 20) -> None:
    """Let everything that can run, run."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to that")


async def test_the_reply_names_the_call_who_served_it_and_where_the_time_went(world: World) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        with context.watch.measure("compute"):
            await asyncio.sleep(0.01)
        return Outcome(
            outputs=EchoOutputs(text="served"), metrics={"loss": 0.5}, policy_version=7, weights_digest="d" * 64
        )

    replica, call = world.replica(), echo_call()
    before = time.time()
    reply = parsed(await StageProtocol(EchoHandler(work), replica).serve(call, StopFlag()))
    assert (reply.key, reply.status, reply.outputs.text) == (call.key, "done", "served")
    assert reply.metrics == {"loss": 0.5}
    assert (reply.served.instance, reply.served.revision) == (replica.instance, replica.revision)
    assert (reply.served.started_at, reply.served.ready_at) == (replica.started_at, replica.ready_at)
    assert (reply.served.policy_version, reply.served.weights_digest) == (7, "d" * 64)
    assert before <= reply.timings.started_at <= reply.timings.ended_at <= time.time()
    assert reply.timings.compute_s >= 0.01
    assert reply.timings.load_s == reply.timings.store_s == 0


async def test_the_same_call_again_gets_the_stored_bytes_also_from_another_replica(world: World) -> None:
    first, second = EchoHandler(), EchoHandler()
    reply = await StageProtocol(first, world.replica()).serve(echo_call(), StopFlag())
    # Another attempt by a newer owner, with another deadline: still the same call.
    again = echo_call(attempt=3, fence=await world.own(), deadline_at=5.0, threads=2, trace_id="other")
    assert await StageProtocol(second, world.replica()).serve(again, StopFlag()) == reply
    assert (first.num_calls, second.num_calls) == (1, 0)


async def test_a_key_with_another_body_is_refused(world: World) -> None:
    served = StageProtocol(EchoHandler(), world.replica())
    await served.serve(echo_call(text="one"), StopFlag())
    with pytest.raises(CallConflict, match="run-1/train/3/0/reward/main/0/0"):
        await served.serve(echo_call(text="two"), StopFlag())


async def test_a_stale_fence_is_refused_before_anything_is_computed(world: World) -> None:
    handler = EchoHandler()
    fence = await world.own(times=2)
    with pytest.raises(StaleFence) as refused:
        await StageProtocol(handler, world.replica()).serve(echo_call(fence=fence - 1), StopFlag())
    assert refused.value.details == {"fence": fence}
    assert handler.num_calls == 0


async def test_while_one_replica_computes_others_are_told_to_come_back(world: World) -> None:
    go_on = asyncio.Event()

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        await go_on.wait()
        return Outcome(outputs=EchoOutputs(text="first"))

    computing = asyncio.create_task(StageProtocol(EchoHandler(work), world.replica()).serve(echo_call(), StopFlag()))
    await turns()
    other = StageProtocol(EchoHandler(), world.replica())
    with pytest.raises(CallBusy) as refused:
        await other.serve(echo_call(), StopFlag())
    assert refused.value.details["retry_after_s"] == pytest.approx(protocol.CLAIM_TTL_S)
    go_on.set()
    assert await other_answer(other, computing) == await computing


async def other_answer(other: StageProtocol, computing: "asyncio.Task[bytes]") -> bytes:
    await computing
    return await other.serve(echo_call(), StopFlag())


@pytest.mark.parametrize(
    ("error", "raised"),
    [(InvalidInput("no such row"), InvalidInput), (ZeroDivisionError("defect"), ZeroDivisionError)],
)
async def test_a_failed_call_can_be_made_again_at_once(world: World, error: Exception, raised: type[Exception]) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        raise error

    with pytest.raises(raised):
        await StageProtocol(EchoHandler(work), world.replica()).serve(echo_call(), StopFlag())
    await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(), StopFlag())


async def test_the_failed_call_keeps_its_key(world: World) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        raise InvalidInput("no")

    served = StageProtocol(EchoHandler(work), world.replica())
    with pytest.raises(InvalidInput):
        await served.serve(echo_call(text="one"), StopFlag())
    with pytest.raises(CallConflict):
        await served.serve(echo_call(text="two"), StopFlag())


async def wait_for_stop(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
    """Compute until stopped, as a handler does: it looks at the flag from time to time."""
    await until(context.stop.is_set)
    context.stop.raise_if_set()
    raise AssertionError("unreachable")


async def test_a_call_whose_caller_is_gone_stops_and_frees_its_key(world: World) -> None:
    stop = StopFlag()
    computing = asyncio.create_task(StageProtocol(EchoHandler(wait_for_stop), world.replica()).serve(echo_call(), stop))
    await turns()
    stop.set("the caller is gone")
    with pytest.raises(Cancelled, match="the caller is gone"):
        await computing
    await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(), StopFlag())


async def test_a_replica_that_lost_its_claim_stops_and_sends_its_caller_to_the_winner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEARTBEAT_S", 0.01)
    go_on = asyncio.Event()

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        await go_on.wait()
        return Outcome(outputs=EchoOutputs(text="winner"))

    stop = StopFlag()
    stalled = asyncio.create_task(StageProtocol(EchoHandler(wait_for_stop), world.replica()).serve(echo_call(), stop))
    await turns()
    # The replica was stalled for so long that another one could take the key.
    world.clock.now_s += protocol.CLAIM_TTL_S + 1
    winning = asyncio.create_task(StageProtocol(EchoHandler(work), world.replica()).serve(echo_call(), StopFlag()))
    with pytest.raises(CallBusy, match="took it over"):
        await stalled
    assert stop.reason == protocol.CLAIM_LOST
    go_on.set()
    assert parsed(await winning).outputs.text == "winner"


async def test_a_newer_owner_of_the_run_stops_a_call_of_the_older_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEARTBEAT_S", 0.01)
    fence = await world.own()
    served = StageProtocol(EchoHandler(wait_for_stop), world.replica())
    computing = asyncio.create_task(served.serve(echo_call(fence=fence), StopFlag()))
    await turns()
    await world.own()
    with pytest.raises(CallBusy):
        await computing
    # Who comes back learns why.
    with pytest.raises(StaleFence):
        await served.serve(echo_call(fence=fence), StopFlag())


@pytest.mark.parametrize("lost_to", ["a replica that computes", "a replica that has committed", "a newer owner"])
async def test_a_result_that_comes_too_late_is_not_stored(world: World, lost_to: str) -> None:
    go_on = asyncio.Event()

    async def late(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        await go_on.wait()
        return Outcome(outputs=EchoOutputs(text="late"))

    computing = asyncio.create_task(StageProtocol(EchoHandler(late), world.replica()).serve(echo_call(), StopFlag()))
    await turns()
    world.clock.now_s += protocol.CLAIM_TTL_S + 1
    other = StageProtocol(EchoHandler(wait_for_stop), world.replica())
    stop = StopFlag()
    match lost_to:
        case "a replica that computes":
            winning = asyncio.create_task(other.serve(echo_call(), stop))
            await turns()
            go_on.set()
            with pytest.raises(CallBusy):
                await computing
            stop.set("end of test")
            with pytest.raises(Cancelled):
                await winning
        case "a replica that has committed":
            won = await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(), StopFlag())
            go_on.set()
            assert await computing == won
        case _:
            await world.own(times=2)
            go_on.set()
            with pytest.raises(StaleFence):
                await computing


async def test_a_claim_that_expired_and_nobody_took_still_counts(world: World) -> None:
    async def slow(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        world.clock.now_s += protocol.CLAIM_TTL_S + 1
        return Outcome(outputs=EchoOutputs(text="slow"))

    reply = await StageProtocol(EchoHandler(slow), world.replica()).serve(echo_call(), StopFlag())
    assert parsed(reply).outputs.text == "slow"


class LossyCalls:
    """A store of calls that is lost for one of its operations."""

    def __init__(self, healthy: CallStore, lost: str) -> None:
        self._healthy = healthy
        self.num_lost = 0
        setattr(self, lost, self._fail)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._healthy, name)

    async def _fail(self, *_: object, **__: object) -> NoReturn:
        self.num_lost += 1
        raise StoreUnavailable("Redis did not answer")


@pytest.mark.parametrize("lost", ["claim", "commit"])
async def test_a_lost_store_is_an_error_that_can_be_tried_again(world: World, lost: str) -> None:
    failing = replace(world.store, calls=LossyCalls(world.store.calls, lost))
    with pytest.raises(StoreUnavailable):
        await StageProtocol(EchoHandler(), world.replica(failing)).serve(echo_call(), StopFlag())
    # Once it is back, the call is served.
    await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(), StopFlag())


async def test_a_heart_that_finds_no_store_beats_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEARTBEAT_S", 0.001)
    calls = LossyCalls(world.store.calls, "renew")
    failing = replace(world.store, calls=calls)

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        await until(lambda: calls.num_lost >= 3)
        assert not context.stop.is_set()
        return Outcome(outputs=EchoOutputs(text="kept on"))

    reply = await StageProtocol(EchoHandler(work), world.replica(failing)).serve(echo_call(), StopFlag())
    assert parsed(reply).outputs.text == "kept on"


async def test_a_lost_store_does_not_hide_why_a_call_failed(world: World) -> None:
    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        raise InvalidInput("no such row")

    failing = replace(world.store, calls=LossyCalls(world.store.calls, "release"))
    with pytest.raises(InvalidInput):
        await StageProtocol(EchoHandler(work), world.replica(failing)).serve(echo_call(), StopFlag())


async def test_the_heart_beats_while_the_handler_works(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEARTBEAT_S", 0.005)

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        # Twice as long as a claim lasts, in steps that a living replica's beats can keep up with.
        for _ in range(8):
            world.clock.now_s += protocol.CLAIM_TTL_S / 4
            await asyncio.sleep(0.02)
        other = await world.store.calls.claim(call.key, digest=call.digest(), owner="other", fence=0, ttl_s=6.0)
        assert not isinstance(other, Granted)
        return Outcome(outputs=EchoOutputs(text="alive"))

    await StageProtocol(EchoHandler(work), world.replica()).serve(echo_call(), StopFlag())


class Occupancy:
    """Counts how many calls are inside at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self.order: list[int] = []

    async def work(self, call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        self.order.append(call.key.shard)
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0.02)
        self.inside -= 1
        return Outcome(outputs=EchoOutputs(text=""))


@pytest.mark.parametrize(("exclusive", "most"), [(True, 1), (False, 3)])
async def test_exclusive_calls_of_one_replica_run_one_after_another(world: World, exclusive: bool, most: int) -> None:
    occupancy, replica = Occupancy(), world.replica()
    # Two stages in one process share its gate.
    stages = [StageProtocol(EchoHandler(occupancy.work, exclusive=exclusive), replica) for _ in range(2)]
    replies = await asyncio.gather(*(stages[shard % 2].serve(echo_call(shard=shard), StopFlag()) for shard in range(3)))
    assert occupancy.most == most
    assert occupancy.order == [0, 1, 2]
    timings = [parsed(reply).timings for reply in replies]
    if exclusive:
        assert timings[0].queue_s < timings[1].queue_s < timings[2].queue_s
        assert timings[1].queue_s >= timings[0].ended_at - timings[0].started_at - 0.001


async def test_a_call_that_waits_for_its_turn_leaves_when_its_caller_does(world: World) -> None:
    replica, first_stop, second_stop = world.replica(), StopFlag(), StopFlag()
    served = StageProtocol(EchoHandler(wait_for_stop, exclusive=True), replica)
    first = asyncio.create_task(served.serve(echo_call(shard=0), first_stop))
    second = asyncio.create_task(served.serve(echo_call(shard=1), second_stop))
    await turns()
    second_stop.set("the caller is gone")
    with pytest.raises(Cancelled):
        await second
    # Its key is free for another replica, and its place in this one for others.
    await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(shard=1), StopFlag())
    first_stop.set("end of test")
    with pytest.raises(Cancelled):
        await first
    assert not replica.gate.locked()


async def test_a_failed_exclusive_call_lets_the_next_one_in(world: World) -> None:
    async def fail(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        raise ZeroDivisionError

    replica = world.replica()
    with pytest.raises(ZeroDivisionError):
        await StageProtocol(EchoHandler(fail, exclusive=True), replica).serve(echo_call(), StopFlag())
    await StageProtocol(EchoHandler(exclusive=True), replica).serve(echo_call(), StopFlag())


@pytest.mark.parametrize(
    ("remaining_s", "expected_s"),
    [(100.0, 100.0 - protocol.DEADLINE_MARGIN_S), (-100.0, protocol.MIN_WORK_S), (0.0, protocol.MIN_WORK_S)],
)
async def test_a_handler_ends_before_the_deadline_but_always_has_time_for_some_work(
    world: World, remaining_s: float, expected_s: float
) -> None:
    given: list[float] = []

    async def work(call: StageCall[EchoInputs], context: CallContext) -> Outcome[EchoOutputs]:
        given.append(context.remaining_s())
        return Outcome(outputs=EchoOutputs(text=""), status="continue")

    call = echo_call(deadline_at=time.time() + remaining_s)
    reply = parsed(await StageProtocol(EchoHandler(work), world.replica()).serve(call, StopFlag()))
    assert given[0] == pytest.approx(expected_s, abs=3)
    assert reply.status == "continue"


async def test_a_cancelled_call_frees_its_key(world: World) -> None:
    computing = asyncio.create_task(
        StageProtocol(EchoHandler(wait_for_stop), world.replica()).serve(echo_call(), StopFlag())
    )
    await turns()
    computing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await computing
    await StageProtocol(EchoHandler(), world.replica()).serve(echo_call(), StopFlag())
