"""A call that waits for a replica says why, and does not wait for ever."""

import asyncio
from dataclasses import dataclass, field

import pytest

from controller.platforms.base import FunctionState, PlatformReply
from controller.platforms.simulated.clock import EPOCH, virtual_now
from controller.runs.errors import StageUnavailable
from controller.runs.stage_client import StageClient
from controller.runs.stage_watch import LOOK_EVERY_S, PATIENCE_S, watch_stage
from shared.contracts.call import CallKey
from shared.contracts.rollout import RolloutOutputs
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire
from tests.fakes.virtual import in_virtual_time


@dataclass
class Stuck:
    """A platform whose function has the replicas and the reason that a test gives it, and never answers."""

    reason: str = ""
    num_ready: int = 0
    stages: tuple[Stage, ...] = (Stage.ROLLOUT,)
    lines: list[tuple[float, str]] = field(default_factory=list)
    num_left: int = 0
    """Calls whose caller has gone."""

    def now(self) -> float:
        return virtual_now()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)

    async def functions(self) -> list[FunctionState]:
        state = FunctionState(
            name="rollout",
            stages=self.stages,
            url="",
            revision="",
            image="",
            ready=False,
            reason=self.reason,
            num_replicas=1,
            num_ready=self.num_ready,
            num_pending=1,
            num_in_flight=0,
            num_queued=1,
            min_scale=0,
            max_scale=1,
        )
        return [state]

    async def invoke(self, *_: object, **__: object) -> PlatformReply:
        try:
            await asyncio.sleep(1e6)
        finally:
            self.num_left += 1
        raise AssertionError("never answered")

    async def notify(self, line: str) -> None:
        self.lines.append((virtual_now() - EPOCH, line))

    def watch(self) -> asyncio.Task[None]:
        return asyncio.create_task(watch_stage(self, Stage.ROLLOUT, self.notify))  # type: ignore[arg-type]


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


@in_virtual_time
async def test_each_new_reason_is_told_once() -> None:
    platform = Stuck(reason="unschedulable: 3 of 2 cpus")
    task = platform.watch()
    await asyncio.sleep(60)
    platform.reason = "image cannot be pulled"
    await asyncio.sleep(60)
    assert [line for _, line in platform.lines] == [
        "rollout has no replica: unschedulable: 3 of 2 cpus",
        "rollout has no replica: image cannot be pulled",
    ]
    assert platform.lines[0][0] == LOOK_EVERY_S
    await end(task)


@pytest.mark.parametrize(
    "platform",
    [
        Stuck(reason=""),
        Stuck(reason="one of two cannot be placed", num_ready=1),
        Stuck(reason="another function's trouble", stages=(Stage.LEARNER,)),
    ],
    ids=["starting", "ready", "another"],
)
@in_virtual_time
async def test_there_is_nothing_to_say_about_a_stage_that_starts_or_works(platform: Stuck) -> None:
    task = platform.watch()
    await asyncio.sleep(3 * PATIENCE_S)
    assert platform.lines == []
    assert not task.done()
    await end(task)


@in_virtual_time
async def test_patience_ends_and_begins_anew_with_a_replica() -> None:
    platform = Stuck(reason="unschedulable")
    task = platform.watch()
    await asyncio.sleep(PATIENCE_S - 2 * LOOK_EVERY_S)
    platform.num_ready = 1
    await asyncio.sleep(2 * LOOK_EVERY_S)
    platform.num_ready = 0
    await asyncio.sleep(PATIENCE_S - 2 * LOOK_EVERY_S)
    assert not task.done()
    await asyncio.sleep(5 * LOOK_EVERY_S)
    with pytest.raises(StageUnavailable, match="rollout has had no replica for 600 s: unschedulable"):
        await task


@in_virtual_time
async def test_a_waiting_call_is_withdrawn_when_patience_ends() -> None:
    platform = Stuck(reason="unschedulable: no node has a GPU")
    client = StageClient(
        platform,  # type: ignore[arg-type]
        token="t",
        fence=1,
        timeout_s=10 * PATIENCE_S,
        notify=platform.notify,
        trace_id="",
    )
    key = CallKey(run="r", purpose=Purpose.TRAIN, step=0, stage=Stage.ROLLOUT)
    with pytest.raises(StageUnavailable, match="no node has a GPU"):
        await client.call(key, Wire(), RolloutOutputs, policy=None)
    assert platform.num_left == 1
    assert virtual_now() - EPOCH < PATIENCE_S + 3 * LOOK_EVERY_S
