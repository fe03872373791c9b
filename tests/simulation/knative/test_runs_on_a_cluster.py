"""Whole runs on a fake cluster, in virtual time: the same controller, the base manifests, real autoscaling."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controller.platforms.editing import FunctionChange
from controller.platforms.simulated.clock import virtual_now
from controller.runs.function_info import Announced
from controller.runs.function_swaps import FunctionSwaps, SwapState, When
from controller.runs.preflight import ping
from controller.runs.service import RunService
from controller.runs.state import RunState
from controller.runs.supervisor import Supervisor
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.adapter import Stand, stand
from tests.fakes.kubernetes.announcing import Announcing
from tests.fakes.kubernetes.api_server import REVISIONS, SERVICES
from tests.fakes.kubernetes.services import base_service
from tests.fakes.stack import Stack, make_stack
from tests.fakes.stages import TOKEN
from tests.fakes.virtual import in_virtual_time

NAMES = ("rollout", "reward", "reference", "critic", "learner")
IMAGE = "there/function:2"


class Cluster:
    """A controller on a cluster, and the store that both share with the functions."""

    def __init__(self, stack: Stack, at: Stand, announcing: Announcing) -> None:
        self.stack = stack
        self.at = at
        self.announcing = announcing
        self.start()

    def start(self) -> None:
        """Start a controller's process."""
        platform, stack = self.at.platform, self.stack

        async def going_on() -> str | None:
            records = await stack.store.runs.list()
            return next((record.id for record in records if record.state == RunState.RUNNING), None)

        self.swaps = FunctionSwaps(platform, platform.editor, self._ping, run_goes_on=going_on)
        self.supervisor = Supervisor(stack.settings, stack.store, stack.blobs, platform, token=TOKEN, swaps=self.swaps)
        self.service = RunService(stack.settings, stack.store, stack.blobs, platform, self.supervisor)
        self.swaps.on_request = self.supervisor.wake
        self.driving = asyncio.create_task(self.supervisor.run_forever())

    async def stop(self) -> None:
        """End the controller, as SIGTERM does."""
        self.driving.cancel()
        await asyncio.wait([self.driving])

    async def submit(self, **overrides: Any) -> str:
        """Queue a run; its id."""
        record = await self.service.submit(self.stack.document(**overrides), (), idempotency_key=None)
        return record.id

    async def lines(self, run: str) -> list[str]:
        """Warnings in the run's log."""
        return [event.data["message"] for event in await self.stack.store.events.read(run) if event.kind == "log"]

    async def step(self, run: str, step: int) -> None:
        """Wait until this step of the run begins."""
        last = "0"
        while True:
            events = await self.stack.store.events.read(run, after=last, wait_s=3600)
            assert events, f"step {step} never begins"
            last = events[-1].id
            begun = [event.data for event in events if event.kind == "progress" and event.data["phase"] == "step"]
            if any(data["step"] == step for data in begun):
                return

    async def _ping(self, state: Any) -> Announced:
        async def notify(line: str) -> None:
            """Nobody follows it."""

        return await ping(self.at.platform, state, token=TOKEN, notify=notify)


def tokenizer_hash(root: Path) -> str:
    """Of the only model there."""
    [tokenizer] = root.rglob("tokenizer.json")
    return hashlib.sha256(tokenizer.read_bytes()).hexdigest()


@asynccontextmanager
async def on_cluster(
    root: Path, *names: str, says: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Cluster]:
    stack = await make_stack(root)
    announcing = Announcing(stack.stages.functions(), says=says or {})
    services = [base_service(name) for name in names or NAMES]
    async with stand(*services, answers=announcing.answers(), **options) as at:
        cluster = Cluster(stack, at, announcing)
        try:
            yield cluster
        finally:
            await cluster.stop()


@in_virtual_time
async def test_a_run_from_zero_to_zero(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        run = await it.submit()
        record = await it.stack.until(run, RunState.SUCCEEDED, RunState.FAILED)
        assert record.state == RunState.SUCCEEDED, record.info
        assert (await it.stack.head(run)).step == 3
        assert sorted(set(it.announcing.asked)) == ["learner-00001", "reward-00001", "rollout-00001"]
        assert it.announcing.authorizations == {f"Bearer {TOKEN}"}
        await asyncio.sleep(150.0)
        assert all(life.ended_at is not None for life in await it.at.platform.replicas())
        for name in NAMES:
            revision = it.at.api.store.get(REVISIONS, f"{name}-00001")
            assert revision is not None
            assert revision["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "0"
        service = it.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        assert [target["revisionName"] for target in service["spec"]["traffic"]] == ["rollout-00001"]


@in_virtual_time
async def test_the_same_run_on_another_platform_has_the_same_weights(tmp_path: Path) -> None:
    stack = await make_stack(tmp_path / "simulated")
    controller = await stack.start()
    run = await stack.submit(controller)
    await stack.until(run, RunState.SUCCEEDED)
    policy = (await stack.head(run)).policy
    await stack.stop()
    async with on_cluster(tmp_path / "cluster") as it:
        other = await it.submit()
        await it.stack.until(other, RunState.SUCCEEDED)
        there = (await it.stack.head(other)).policy
        assert (there.version, there.digest) == (policy.version, policy.digest)


@in_virtual_time
async def test_a_controller_that_is_restarted_goes_on_with_its_run(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        run = await it.submit()
        await it.step(run, 1)
        await it.stop()
        assert (await it.stack.record(run)).state == RunState.PAUSED
        await asyncio.sleep(100.0)
        it.start()
        assert (await it.stack.until(run, RunState.SUCCEEDED, RunState.FAILED)).state == RunState.SUCCEEDED
        assert (await it.stack.head(run)).step == 3


@in_virtual_time
async def test_a_missing_function_fails_the_run_before_it_begins(tmp_path: Path) -> None:
    async with on_cluster(tmp_path, "rollout", "reward") as it:
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert record.info["error"] == "no function serves learner: apply the manifest of each"
        assert not it.stack.stages.calls


@in_virtual_time
async def test_tokenizers_that_differ_fail_the_run_before_it_begins(tmp_path: Path) -> None:
    says = {"rollout": {"tokenizer_hash": "a" * 64, "model": "one"}, "learner": {"tokenizer_hash": "b" * 64}}
    async with on_cluster(tmp_path, says=says) as it:
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert "learner bbbbbbbbbbbb, rollout aaaaaaaaaaaa" in record.info["error"]
        assert not it.stack.stages.calls


@in_virtual_time
async def test_functions_that_agree_on_a_tokenizer_that_is_not_the_runs_fail_it(tmp_path: Path) -> None:
    told = {"tokenizer_hash": "a" * 64}
    async with on_cluster(tmp_path, says={"rollout": told, "learner": told}) as it:
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert "rollout aaaaaaaaaaaa, the run's model " in record.info["error"]
        assert not it.stack.stages.calls


@in_virtual_time
async def test_functions_that_carry_the_runs_tokenizer_serve_it(tmp_path: Path) -> None:
    says: dict[str, Any] = {"rollout": {}}
    async with on_cluster(tmp_path, says=says) as it:
        says["rollout"]["tokenizer_hash"] = tokenizer_hash(tmp_path)
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert record.state == RunState.SUCCEEDED, record.info


@in_virtual_time
async def test_a_function_that_speaks_another_contract_fails_the_run_before_it_begins(tmp_path: Path) -> None:
    async with on_cluster(tmp_path, says={"reward": {"contract_version": 99}}) as it:
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert "reward speaks version 99 of the stage contract" in record.info["error"]


@in_virtual_time
async def test_a_change_at_a_step_boundary(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        run = await it.submit()
        await it.step(run, 0)
        await it.swaps.request("reward", FunctionChange(image=IMAGE), When.STEP_BOUNDARY)
        assert (await it.stack.until(run, RunState.SUCCEEDED, RunState.FAILED)).state == RunState.SUCCEEDED
        swap = it.swaps.swaps["reward"]
        assert (swap.state, swap.revision) == (SwapState.DONE, "reward-00002")
        told = [line for line in await it.lines(run) if "reward-00002" in line]
        assert told == ["reward is reward-00002 from this step on"]
        served = {(call.key.step, call.instance.rpartition("-")[0]) for call in it.stack.stages.seen(Stage.REWARD)}
        assert served == {(0, "reward-00001"), (1, "reward-00002"), (2, "reward-00002")}


@in_virtual_time
async def test_a_change_at_a_step_boundary_that_is_taken_back_does_not_end_the_run(tmp_path: Path) -> None:
    async with on_cluster(tmp_path, says={"reward-00002": {"stages": ["critic"]}}) as it:
        run = await it.submit()
        await it.step(run, 0)
        await it.swaps.request("reward", FunctionChange(image=IMAGE), When.STEP_BOUNDARY)
        assert (await it.stack.until(run, RunState.SUCCEEDED, RunState.FAILED)).state == RunState.SUCCEEDED
        assert it.swaps.swaps["reward"].state is SwapState.FAILED
        assert any(
            line.startswith("reward was not changed: reward is back at reward-00001") for line in await it.lines(run)
        )
        assert {call.instance.rpartition("-")[0] for call in it.stack.stages.seen(Stage.REWARD)} == {"reward-00001"}


@in_virtual_time
async def test_a_change_that_waits_for_the_end_of_the_run(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        run = await it.submit()
        await asyncio.sleep(2.0)
        second = await it.submit()
        await it.step(run, 0)
        await it.swaps.request("rollout", FunctionChange(image=IMAGE), When.IDLE)
        await it.stack.until(run, RunState.SUCCEEDED)
        assert it.swaps.swaps["rollout"].state is SwapState.WAITING
        await it.stack.until(second, RunState.SUCCEEDED)
        assert it.swaps.swaps["rollout"].state is SwapState.DONE
        revisions = {call.key.run: call.instance.rpartition("-")[0] for call in it.stack.stages.seen(Stage.ROLLOUT)}
        assert revisions == {run: "rollout-00001", second: "rollout-00002"}


@in_virtual_time
async def test_an_update_from_outside_does_not_reach_the_run_that_goes_on(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        run = await it.submit()
        await it.step(run, 0)
        service = it.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        service["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
        it.at.cluster.apply(service)
        await it.stack.until(run, RunState.SUCCEEDED)
        assert {call.instance.rpartition("-")[0] for call in it.stack.stages.seen(Stage.ROLLOUT)} == {"rollout-00001"}
        told = [line for line in await it.lines(run) if "rollout has a new revision rollout-00002 from outside" in line]
        assert len(told) == 1
        await asyncio.sleep(300.0)
        assert it.swaps.swaps["rollout"].state is SwapState.DONE
        [state] = [state for state in await it.at.platform.functions() if state.name == "rollout"]
        assert state.revision == "rollout-00002"


@in_virtual_time
async def test_requests_that_somebody_sends_elsewhere_are_noticed(tmp_path: Path) -> None:
    """Without the right to tie them, a run watches its functions' revisions, and goes on with one that fits."""
    async with on_cluster(tmp_path, forbidden=[("patch", "services")]) as it:
        run = await it.submit()
        await it.step(run, 0)
        service = it.at.api.store.get(SERVICES, "reward")
        assert service is not None
        service["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
        it.at.cluster.apply(service)
        assert (await it.stack.until(run, RunState.SUCCEEDED, RunState.FAILED)).state == RunState.SUCCEEDED
        lines = await it.lines(run)
        assert any("the run is not tied to its functions' revisions, only watched" in line for line in lines)
        assert "reward went from reward-00001 to reward-00002: the run goes on with it" in lines


@in_virtual_time
async def test_requests_that_go_to_an_unfit_revision_end_the_run(tmp_path: Path) -> None:
    async with on_cluster(
        tmp_path, says={"reward-00002": {"contract_version": 99}}, forbidden=[("patch", "services")]
    ) as it:
        run = await it.submit()
        await it.step(run, 0)
        service = it.at.api.store.get(SERVICES, "reward")
        assert service is not None
        service["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
        it.at.cluster.apply(service)
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert "reward went from reward-00001 to reward-00002: reward speaks version 99" in record.info["error"]


@in_virtual_time
async def test_a_function_that_never_starts_fails_the_run_with_the_reason(tmp_path: Path) -> None:
    async with on_cluster(tmp_path) as it:
        it.at.cluster.pods._becomes_ready = lambda revision: not revision.startswith("learner")
        it.at.cluster.troubles["learner-00001"] = ("ImagePullBackOff", "no such image")
        began_at = virtual_now()
        run = await it.submit()
        record = await it.stack.until(run, RunState.FAILED, RunState.SUCCEEDED)
        assert "learner did not start" in record.info["error"]
        assert "ImagePullBackOff of container function: no such image" in record.info["error"]
        assert 600 <= virtual_now() - began_at <= 700
        assert any("learner has no replica: ImagePullBackOff" in line for line in await it.lines(run))
