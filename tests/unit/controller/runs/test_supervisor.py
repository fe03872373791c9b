"""Who drives which run, and how that ends: whole controllers in virtual time."""

import asyncio
import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.platforms.base import PlatformFigures, PlatformReply
from controller.platforms.simulated.clock import EPOCH, virtual_now
from controller.runs.state import PENDING, RunState
from controller.runs.supervisor import OWNER_TTL_S, checkpoint_root
from controller.settings import ControllerSettings
from shared.contracts.errors import Problem
from shared.contracts.stage import Stage
from shared.store.base import Owned, RunRecord, Store
from tests.fakes.gates import Gated
from tests.fakes.scripted import Scripted, plain, refusal
from tests.fakes.stack import Stack, make_stack
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import SPECS, config_of, prepared_of

ENDED = ("failed", "cancelled", "succeeded")


async def undisturbed_digest(tmp_path: Path) -> str:
    """Weights that a run comes to if nothing happens to it."""
    stack = await make_stack(tmp_path / "undisturbed")
    controller = await stack.start()
    run = await stack.submit(controller)
    await stack.until(run, "succeeded")
    await stack.stop()
    return (await stack.head(run)).policy.digest


async def in_mid_step(stack: Stack) -> None:
    """Wait until the first step samples."""
    await stack.stages.first(Stage.ROLLOUT)
    await asyncio.sleep(1.0)


@in_virtual_time
async def test_a_queued_run_is_driven_to_its_end_and_its_replicas_are_freed(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run = await stack.submit(controller)
    record = await stack.until(run, *ENDED)
    assert record.state == "succeeded"
    assert record.info["error"] is None
    assert EPOCH <= record.info["started_at"] < record.info["finished_at"] == pytest.approx(virtual_now())
    assert await stack.states(run) == ["queued", "running", "succeeded"]
    assert (await stack.head(run)).step == 3
    await asyncio.sleep(1)
    assert await stack.num_replicas() == 0
    await stack.stop()


@in_virtual_time
async def test_a_run_with_every_stage_leaves_none_of_their_replicas(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run = await stack.submit(
        controller, algorithm__adv_estimator="gae", actor__use_kl_loss=True, algorithm__use_kl_in_reward=True
    )
    assert (await stack.until(run, *ENDED)).state == "succeeded"
    lives = await stack.platform.replicas()
    assert {life.function for life in lives} == {"rollout", "reward", "reference", "critic", "learner"}
    await asyncio.sleep(1)
    assert await stack.num_replicas() == 0
    await stack.stop()


@pytest.mark.parametrize("num_controllers", [1, 3])
@in_virtual_time
async def test_runs_are_driven_one_after_another_the_oldest_first(tmp_path: Path, num_controllers: int) -> None:
    stack = await make_stack(tmp_path)
    controller, *_ = [await stack.start() for _ in range(num_controllers)]
    runs = []
    for _ in range(3):
        runs.append(await stack.submit(controller))
        await asyncio.sleep(0.5)
    assert [(await stack.record(run)).state for run in runs] == ["running", "queued", "queued"]
    for run in runs:
        await stack.until(run, "succeeded")
    times = [(await stack.record(run)).info for run in runs]
    for earlier, later in pairwise(times):
        assert earlier["finished_at"] <= later["started_at"]
    await stack.stop()


@in_virtual_time
async def test_a_cancelled_run_is_cancelled_and_its_replicas_are_gone_within_5_s(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path, s_per_token=5.0)
    controller = await stack.start()
    run = await stack.submit(controller)
    await in_mid_step(stack)
    assert await stack.num_replicas() > 0
    asked_at = virtual_now()
    await controller.service.cancel(run)
    record = await stack.until(run, *ENDED)
    assert record.state == "cancelled"
    await asyncio.sleep(1)
    assert virtual_now() - asked_at < 5
    assert await stack.num_replicas() == 0
    await asyncio.sleep(60)
    assert await stack.num_replicas() == 0, "nothing asks for replicas after the end"
    assert await stack.states(run) == ["queued", "running", "cancelled"]
    retried = [event for event in await stack.store.events.read(run) if event.data.get("level") == "warning"]
    assert retried == [], "its calls are withdrawn before their replicas go"
    await stack.stop()


@in_virtual_time
async def test_a_run_that_waits_is_cancelled_at_once_and_never_driven(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    first = await stack.submit(controller)
    await asyncio.sleep(1)
    second = await stack.submit(controller)
    assert (await controller.service.cancel(second)).state == "cancelled"
    await stack.until(first, "succeeded")
    await asyncio.sleep(60)
    assert await stack.states(second) == ["queued", "cancelled"]
    assert await stack.store.runs.head(second) is None
    await stack.stop()


@in_virtual_time
async def test_a_cancelled_run_resumes_at_its_head_and_comes_to_the_same_weights(tmp_path: Path) -> None:
    expected = await undisturbed_digest(tmp_path)
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run = await stack.submit(controller)
    while (await stack.store.runs.head(run)) is None or (await stack.head(run)).step < 1:
        await stack.store.events.read(run, after="0", wait_s=1)
        await asyncio.sleep(0.5)
    await controller.service.cancel(run)
    await stack.until(run, "cancelled")
    started_at = (await stack.record(run)).info["started_at"]
    resumed = await controller.service.resume(run)
    assert resumed.info["finished_at"] is None
    record = await stack.until(run, "succeeded")
    assert record.info["started_at"] == started_at
    assert (await stack.head(run)).policy.digest == expected
    lines = [line["step"] for line in await stack.store.runs.history(run) if line["kind"] == "step"]
    assert lines == [0, 1, 2]
    await stack.stop()


@pytest.mark.parametrize("stage", [Stage.ROLLOUT, Stage.REWARD, Stage.LEARNER])
@in_virtual_time
async def test_a_stage_whose_every_replica_is_lost_fails_the_run_and_is_named(tmp_path: Path, stage: Stage) -> None:
    """All but the calls that publish version 0: the run is under way when its replicas begin to die."""

    def lost(function: Any) -> Any:
        async def answer(path: str, body: bytes, headers: Any, replica: Any) -> PlatformReply:
            if b'"purpose":"init"' in body:
                return await function(path, body, headers, replica)
            return plain(502)

        return answer

    stack = await make_stack(tmp_path, wrapped={stage: lost})
    controller = await stack.start()
    run = await stack.submit(controller, trainer__val_before_train=False)
    record = await stack.until(run, *ENDED)
    assert record.state == "failed"
    assert record.info["error"].startswith(f"{stage} gave no result in 8 attempts")
    assert "succeeded" not in await stack.states(run)
    assert (await stack.head(run)).step == 0
    await asyncio.sleep(1)
    assert await stack.num_replicas() == 0
    await stack.stop()


@in_virtual_time
async def test_what_functions_fail_with_is_told_without_secrets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, word = "sk-" + "a1B2" * 6, "hunter2"
    said = f"no answer of https://me:{word}@judge.example/?api_key={word} with {key}"
    problem = Problem(code="reward_failed", message=said, retryable=False)
    answers = [plain(503, said), PlatformReply(status=500, headers={}, body=problem.model_dump_json().encode())]
    stack = await make_stack(tmp_path, wrapped={Stage.REWARD: lambda function: Scripted(function, answers)})
    controller = await stack.start()
    run = await stack.submit(controller)
    record = await stack.until(run, *ENDED)
    assert "judge.example" in record.info["error"]
    events = [event.data for event in await stack.store.events.read(run)]
    for told in (record.info, events, caplog.text):
        assert "judge.example" in str(told)
        assert key not in str(told)
        assert word not in str(told)
    await stack.stop()


@in_virtual_time
async def test_a_failed_run_says_why_lets_others_go_on_and_resumes_once_the_cause_is_gone(tmp_path: Path) -> None:
    expected = await undisturbed_digest(tmp_path)
    broken: list[Scripted] = []

    def fail_once(function: Any) -> Scripted:
        broken.append(Scripted(function, [refusal(500, "reward_failed")]))
        return broken[0]

    stack = await make_stack(tmp_path, wrapped={Stage.REWARD: fail_once})
    controller = await stack.start()
    run = await stack.submit(controller)
    record = await stack.until(run, *ENDED)
    assert record.state == "failed"
    assert record.info["error"] == "reward: because of reward_failed (reward_failed)"
    [*_, last] = [event for event in await stack.store.events.read(run) if event.kind == "state"]
    assert last.data == {"state": "failed", "reason": record.info["error"]}
    await asyncio.sleep(1)
    assert await stack.num_replicas() == 0

    other = await stack.submit(controller)
    await stack.until(other, "succeeded")
    assert (await controller.service.resume(run)).info["error"] is None
    record = await stack.until(run, *ENDED)
    assert (record.state, record.info["error"]) == ("succeeded", None)
    assert (await stack.head(run)).policy.digest == expected
    await stack.stop()


@in_virtual_time
async def test_a_controller_that_is_told_to_end_pauses_its_run_and_the_next_goes_on_at_once(tmp_path: Path) -> None:
    expected = await undisturbed_digest(tmp_path)
    stack = await make_stack(tmp_path)
    first = await stack.start()
    run = await stack.submit(first)
    await in_mid_step(stack)
    await first.stop()
    assert (await stack.record(run)).state == "paused"
    stopped_at = virtual_now()
    await stack.start()
    await stack.until(run, "running")
    assert virtual_now() - stopped_at < 2
    await stack.until(run, "succeeded")
    assert (await stack.head(run)).policy.digest == expected
    assert await stack.states(run) == ["queued", "running", "paused", "running", "succeeded"]
    await stack.stop()


@in_virtual_time
async def test_a_controller_that_dies_is_followed_when_its_lease_ends(tmp_path: Path) -> None:
    expected = await undisturbed_digest(tmp_path)
    stack = await make_stack(tmp_path)
    first = await stack.start()
    run = await stack.submit(first)
    second = await stack.start()
    await in_mid_step(stack)
    assert {call.fence for call in stack.stages.calls} == {1}, "the second waits while the first lives"
    await first.kill()
    died_at = virtual_now()
    assert (await stack.record(run)).state == "running"
    while {call.fence for call in stack.stages.calls} == {1}:
        await stack.store.events.read(run, after="0", wait_s=1)
        await asyncio.sleep(0.5)
    assert OWNER_TTL_S - 2 < virtual_now() - died_at < OWNER_TTL_S + 3
    await stack.until(run, "succeeded")
    assert (await stack.head(run)).policy.digest == expected
    await second.stop()


@in_virtual_time
async def test_a_controller_that_lost_its_lease_stops_and_leaves_the_others_replicas_alone(tmp_path: Path) -> None:
    expected = await undisturbed_digest(tmp_path)
    stack = await make_stack(tmp_path, s_per_token=3.0)
    first = await stack.start()
    run = await stack.submit(first)
    second = await stack.start()
    await in_mid_step(stack)
    first.outage.is_on = True
    await asyncio.sleep(OWNER_TTL_S + 3)
    taken_at = virtual_now()
    assert {call.fence for call in stack.stages.calls} == {1, 2}
    first.outage.is_on = False
    await asyncio.sleep(3)
    lives = await stack.platform.replicas()
    assert not any(life.reason == "released" for life in lives), "the second one's calls run on them"
    await stack.until(run, "succeeded")
    late = [call for call in stack.stages.calls if call.fence == 1 and call.at > taken_at + 3]
    assert late == []
    assert (await stack.head(run)).policy.digest == expected
    assert (await stack.states(run)).count("failed") == 0
    for controller in (first, second):
        assert not controller.task.done()
    await stack.stop()


@pytest.mark.parametrize("length_s", [3.0, 30.0])
@in_virtual_time
async def test_a_run_waits_for_a_store_that_is_away_and_goes_on(tmp_path: Path, length_s: float) -> None:
    expected = await undisturbed_digest(tmp_path)
    for number, moment in enumerate((0.5, 3.0, 6.0, 12.0)):
        stack = await make_stack(tmp_path / str(number), s_per_token=0.5)
        controller = await stack.start()
        run = await stack.submit(controller)
        await asyncio.sleep(moment)
        stack.outage.is_on = True
        await asyncio.sleep(length_s)
        stack.outage.is_on = False
        record = await stack.until(run, *ENDED)
        assert record.state == "succeeded", f"away at {moment} s: {record.info['error']}"
        assert (await stack.head(run)).policy.digest == expected
        await stack.stop()


@in_virtual_time
async def test_a_controller_ends_when_it_is_told_to_even_while_the_store_is_away(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    await stack.submit(controller)
    await in_mid_step(stack)
    stack.outage.is_on = True
    async with asyncio.timeout(5):
        await controller.stop()
    assert controller.task.cancelled()


@in_virtual_time
async def test_a_missing_function_fails_the_run_and_not_the_controller(tmp_path: Path) -> None:
    specs = tuple(spec for spec in SPECS if spec.name != "reward")
    stack = await make_stack(tmp_path, specs=specs)
    controller = await stack.start()
    for _ in range(2):
        run = await stack.submit(controller)
        record = await stack.until(run, *ENDED)
        assert record.state == "failed"
        assert "no function serves the stage reward" in record.info["error"]
    assert not controller.task.done()
    await stack.stop()


class EndsInBetween:
    """Runs that end between being listed and being owned: another controller was faster."""

    def __init__(self, store: Store, state: RunState) -> None:
        self._runs = store.runs
        self._state = state

    async def acquire(self, run: str, *, owner: str, ttl_s: float) -> Owned | None:
        await self._runs.transition(run, to=self._state, allowed=PENDING)
        return await self._runs.acquire(run, owner=owner, ttl_s=ttl_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.CANCELLED, RunState.SUCCEEDED])
@in_virtual_time
async def test_a_run_that_has_just_ended_is_not_taken_up_again(tmp_path: Path, state: RunState) -> None:
    stack = await make_stack(tmp_path)
    raced = Store(
        calls=stack.store.calls,
        work=stack.store.work,
        runs=EndsInBetween(stack.store, state),  # type: ignore[arg-type]
        events=stack.store.events,
        records=stack.store.records,
    )
    controller = await stack.start(store=raced)
    run = await stack.submit(controller)
    await asyncio.sleep(30)
    assert (await stack.record(run)).state == state
    assert stack.stages.calls == []
    assert await stack.num_replicas() == 0
    # Nor is it kept from whoever resumes it.
    assert await stack.store.runs.acquire(run, owner="somebody", ttl_s=1) is not None
    await stack.stop()


@in_virtual_time
async def test_data_that_is_gone_since_the_run_was_queued_fails_it_by_name(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    first = await stack.submit(controller)
    await asyncio.sleep(0.5)
    second = await stack.submit(controller)
    (tmp_path / "val.jsonl").unlink()
    await stack.until(first, "succeeded")
    record = await stack.until(second, *ENDED)
    assert record.state == "failed"
    assert "data.val_files" in record.info["error"]
    await stack.stop()


@in_virtual_time
async def test_a_defect_of_the_controller_fails_the_run_without_its_details(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Defective(Gated):
        """A platform whose clockwork breaks."""

        def now(self) -> float:
            return virtual_now()

        def figures(self) -> PlatformFigures:
            return PlatformFigures()

    stack = await make_stack(tmp_path)

    def break_down(operation: str, done: bool) -> None:
        if operation == "replicas":
            raise KeyError("a secret of the store")

    controller = await stack.start(platform=Defective(stack.platform, break_down))  # type: ignore[arg-type]
    run = await stack.submit(controller)
    with caplog.at_level(logging.ERROR):
        record = await stack.until(run, *ENDED)
    assert (record.state, record.info["error"]) == ("failed", "the controller failed with KeyError: see its log")
    assert "a secret of the store" in caplog.text
    await stack.stop()


@in_virtual_time
async def test_retries_are_told_in_the_runs_log(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path, wrapped={Stage.LEARNER: lambda function: Scripted(function, [plain(503)])})
    controller = await stack.start()
    run = await stack.submit(controller)
    await stack.until(run, "succeeded")
    warnings = [
        event.data["message"]
        for event in await stack.store.events.read(run)
        if event.kind == "log" and event.data["level"] == "warning"
    ]
    assert len(warnings) == 1
    assert f"{run}/init/0/0/learner/main/0/0: attempt 1 of" in warnings[0]
    await stack.stop()


@in_virtual_time
async def test_a_run_deleted_under_its_driver_is_given_up(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path)
    controller = await stack.start()
    run = await stack.submit(controller)
    await in_mid_step(stack)
    await stack.store.runs.delete(run)
    await asyncio.sleep(5)
    num_calls = len(stack.stages.calls)
    await asyncio.sleep(60)
    assert len(stack.stages.calls) == num_calls
    other = await stack.submit(controller)
    assert isinstance(await stack.until(other, "succeeded"), RunRecord)
    await stack.stop()


def test_checkpoints_lie_by_project_and_run(tmp_path: Path) -> None:
    settings = ControllerSettings.from_environment({"RLHFLESS_STATE_DIR": str(tmp_path)})

    def root(**overrides: Any) -> Path:
        return checkpoint_root(settings, prepared_of(config_of(**overrides), tmp_path), "run-1")

    assert root() == tmp_path / "checkpoints" / "rlhfless" / "run-1"
    assert root(trainer__project_name="p", trainer__experiment_name="e") == tmp_path / "checkpoints" / "p" / "run-1"
    assert root(trainer__default_local_dir="/models/out") == Path("/models/out/rlhfless/run-1")
