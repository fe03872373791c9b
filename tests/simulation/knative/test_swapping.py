"""Changes of functions on a fake cluster with Knative's defaults: a new revision starts a pod before it is ready."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.platforms.base import FunctionState
from controller.platforms.editing import FunctionChange
from controller.platforms.local.capacity import Machine
from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.simulated.clock import virtual_now
from controller.runs.function_info import Announced
from controller.runs.function_swaps import FunctionSwaps, Swap, SwapState, When
from controller.runs.preflight import ping
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.adapter import EVERY_STAGE, LARGE, Stand, stand
from tests.fakes.kubernetes.announcing import Announcing
from tests.fakes.kubernetes.api_server import SERVICES, Fault
from tests.fakes.kubernetes.services import base_service
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.paced_pods import PacedPods

IMAGE = "there/function:2"
CHANGE = FunctionChange(image=IMAGE, env={"LEVEL": "2"})
OLD, NEW = "rollout-00001", "rollout-00002"


class Swapping:
    """An adapter, its cluster, and changes."""

    def __init__(self, at: Stand, announcing: Announcing) -> None:
        self.at = at
        self.announcing = announcing
        self.warnings: list[str] = []
        self.swaps = FunctionSwaps(at.platform, at.platform.editor, self._ping, run_goes_on=self._nothing)

    async def change(self, change: FunctionChange = CHANGE) -> Swap:
        """Ask for a change and see it done, or not."""
        await self.swaps.request("rollout", change, When.NOW)
        assert await self.swaps.perform_idle()
        return self.swaps.swaps["rollout"]

    async def state(self) -> FunctionState:
        """The function now."""
        return next(state for state in await self.at.platform.functions() if state.name == "rollout")

    async def served_by(self) -> str:
        """The revision that a call goes to."""
        return (await self.at.call(Stage.ROLLOUT, 0.0)).body.decode()

    def template(self) -> dict[str, Any]:
        """The container of the Service's template."""
        service = self.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        return service["spec"]["template"]["spec"]["containers"][0]

    async def _ping(self, state: FunctionState) -> Announced:
        async def notify(line: str) -> None:
            self.warnings.append(line)

        return await ping(self.at.platform, state, token="the-functions-token", notify=notify, budget_s=60.0)

    async def _nothing(self) -> None:
        return None


@asynccontextmanager
async def swapping(
    *, machine: Machine = LARGE, never_ready: tuple[str, ...] = (), service: Any = None, **options: Any
) -> AsyncIterator[Swapping]:
    announcing = Announcing(EVERY_STAGE)
    pods = PacedPods(start_s=2.8, machine=machine, becomes_ready=lambda revision: revision not in never_ready)
    async with stand(
        service or base_service("rollout", window="6s"),
        answers=announcing.answers(),
        pods=pods,
        defaults=KNATIVE,
        rest_s=120.0,
        **options,
    ) as at:
        yield Swapping(at, announcing)


@in_virtual_time
async def test_the_old_revision_is_gone_before_the_new_one_starts() -> None:
    async with swapping() as it:
        assert await it.served_by() == OLD
        swap = await it.change()
        assert (swap.state, swap.revision, swap.reason) == (SwapState.DONE, NEW, "")
        old, new = ([life for life in it.at.cluster.lives("rollout") if life.revision == name] for name in (OLD, NEW))
        assert new
        assert all(life.ended_at is not None and life.ended_at <= new[0].scheduled_at for life in old)
        state = await it.state()
        assert (state.revision, state.image, state.ready) == (NEW, IMAGE, True)
        assert await it.served_by() == NEW
        assert {"name": "LEVEL", "value": "2"} in it.template()["env"]
        assert it.announcing.asked == [NEW]
        assert it.announcing.authorizations == {"Bearer the-functions-token"}


@in_virtual_time
async def test_one_gpu_is_enough() -> None:
    service = base_service("rollout", window="6s")
    service["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    async with swapping(service=service, machine=Machine(num_cpus=8, memory_bytes=2**35, num_gpus=1)) as it:
        assert await it.served_by() == OLD
        assert (await it.change()).state is SwapState.DONE
        assert not [life for life in it.at.cluster.lives("rollout") if "unschedulable" in life.reason]


@in_virtual_time
async def test_a_busy_replica_ends_its_request_first() -> None:
    async with swapping() as it:
        call = it.at.call(Stage.ROLLOUT, 40.0)
        await asyncio.sleep(5.0)
        changing = asyncio.create_task(it.change())
        assert (await call).body.decode() == OLD
        assert not [life for life in it.at.cluster.lives("rollout") if life.revision == NEW]
        assert (await changing).state is SwapState.DONE


@in_virtual_time
async def test_what_never_becomes_ready_is_taken_back() -> None:
    async with swapping(never_ready=(NEW,)) as it:
        it.at.cluster.troubles[NEW] = ("ImagePullBackOff", "there/function:2: not found")
        swap = await it.change()
        assert (swap.state, swap.revision) == (SwapState.FAILED, OLD)
        assert "rollout is back at rollout-00001" in swap.reason
        assert "there/function:2: not found" in swap.reason
        assert it.template()["image"] != IMAGE, "the template is as it was"
        await asyncio.sleep(60.0)
        assert not [life for life in it.at.cluster.lives("rollout") if life.revision == NEW and not life.ended_at]
        assert [life for life in it.at.cluster.lives("rollout") if life.revision == NEW], "it had tried"
        state = await it.state()
        assert (state.revision, state.ready) == (OLD, True)
        assert await it.served_by() == OLD
        assert not await it.swaps.perform_idle(), "the template that came back made a revision that nobody has to take"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ({"contract_version": 99}, "speaks version 99 of the stage contract"),
        ({"stages": ["reward"]}, "serves reward, not rollout"),
        ({"stages": None}, "does not say what it is: /v1/info lacks stages"),
        ({"status": 401, "code": "unauthenticated", "message": "send the token"}, "answers /v1/info with 401"),
        ({"status": 404}, "answers /v1/info with 404"),
    ],
)
def test_an_image_that_breaks_the_contract_is_taken_back(says: dict[str, Any], reason: str) -> None:
    @in_virtual_time
    async def scenario() -> None:
        async with swapping() as it:
            it.announcing.says[NEW] = says
            swap = await it.change()
            assert (swap.state, swap.revision) == (SwapState.FAILED, OLD)
            assert reason in swap.reason
            assert await it.served_by() == OLD

    scenario()


@in_virtual_time
async def test_what_the_webhook_refuses_changes_nothing() -> None:
    async with swapping() as it:
        swap = await it.change(FunctionChange(env={"K_REVISION": "mine"}))
        assert swap.state is SwapState.FAILED
        assert "K_REVISION is set by the platform" in swap.reason
        assert (await it.state()).revision == OLD
        assert len((await it.state()).revisions) == 1


@in_virtual_time
async def test_without_the_right_to_patch_services_nothing_is_touched() -> None:
    async with swapping(forbidden=[("patch", "services")]) as it:
        assert await it.served_by() == OLD
        swap = await it.change()
        assert swap.state is SwapState.FAILED
        assert "may not patch services.serving.knative.dev" in swap.reason
        assert it.at.cluster.num_pods("rollout") == 1, "nobody was drained for nothing"


@in_virtual_time
async def test_an_api_server_that_fails_for_long_leaves_the_old_one() -> None:
    async with swapping() as it:
        it.at.api.faults = [Fault(status=503, verb="patch", plural="services")] * 20
        swap = await it.change()
        assert swap.state is SwapState.FAILED
        it.at.api.faults = []
        assert await it.served_by() == OLD
        assert (await it.change()).state is SwapState.DONE


@in_virtual_time
async def test_an_api_server_that_stumbles_is_no_failure() -> None:
    async with swapping() as it:
        it.at.api.faults = [
            Fault(status=429, verb="patch", headers={"retry-after": "3"}),
            Fault(status=500, verb="patch", applied=True),
            Fault(status=409, verb="patch"),
        ]
        assert (await it.change()).state is SwapState.DONE


@in_virtual_time
async def test_a_change_that_changes_nothing_makes_no_revision() -> None:
    async with swapping() as it:
        image = it.template()["image"]
        swap = await it.change(FunctionChange(image=image))
        assert (swap.state, swap.revision) == (SwapState.DONE, OLD)
        assert len((await it.state()).revisions) == 1


@in_virtual_time
async def test_a_revision_from_outside_is_taken_up_in_the_same_way() -> None:
    async with swapping() as it:
        await it.change(FunctionChange(env={"LEVEL": "1"}))
        assert await it.served_by() == NEW
        it.at.cluster.apply(base_service("rollout", window="6s", image="there/function:3"))
        # As kn does it, what routes the requests stays.
        service = it.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        it.at.cluster.apply(service | {"spec": service["spec"] | {"traffic": [{"revisionName": NEW, "percent": 100}]}})
        await asyncio.sleep(1.0)
        [outside] = await it.swaps.outside()
        assert outside.revisions[-1].name == "rollout-00003"
        assert await it.swaps.perform_idle()
        swap = it.swaps.swaps["rollout"]
        assert (swap.state, swap.revision, swap.from_outside) == (SwapState.DONE, "rollout-00003", True)
        assert (await it.state()).image == "there/function:3"
        assert not await it.swaps.outside()


@in_virtual_time
async def test_a_revision_from_outside_that_is_unfit_is_tried_once() -> None:
    async with swapping() as it:
        await it.at.platform.editor.route("rollout", OLD)
        it.announcing.says[NEW] = {"contract_version": 0}
        service = it.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        service["spec"]["template"]["spec"]["containers"][0]["image"] = "there/function:3"
        it.at.cluster.apply(service)
        await asyncio.sleep(1.0)
        assert await it.swaps.perform_idle()
        assert it.swaps.swaps["rollout"].state is SwapState.FAILED
        assert await it.served_by() == OLD
        assert not await it.swaps.perform_idle()


@in_virtual_time
async def test_requests_are_sent_once_the_ingress_has_followed() -> None:
    async with swapping(ingress_lag_s=5.0) as it:
        asked_at = virtual_now()
        await it.at.platform.editor.route("rollout", OLD)
        assert virtual_now() - asked_at >= 5.0
        await it.at.platform.editor.route("rollout", OLD)
        assert virtual_now() - asked_at < 6.0


@in_virtual_time
async def test_a_revision_that_somebody_has_pinned_stays() -> None:
    async with swapping() as it:
        await it.change()
        service = it.at.api.store.get(SERVICES, "rollout")
        assert service is not None
        service["spec"]["traffic"] = [{"revisionName": OLD, "percent": 100, "latestRevision": False}]
        it.at.cluster.apply({key: value for key, value in service.items() if key != "status"})
        await asyncio.sleep(1.0)
        assert (await it.state()).revision == OLD
        # A controller that has just started knows of no earlier change.
        swaps = FunctionSwaps(it.at.platform, it.at.platform.editor, it._ping, run_goes_on=it._nothing)
        assert not await swaps.perform_idle()
        assert (await it.state()).revision == OLD


@in_virtual_time
async def test_a_function_that_has_never_worked_can_be_changed() -> None:
    async with swapping(never_ready=(OLD,)) as it:
        assert not (await it.state()).ready
        swap = await it.change()
        assert (swap.state, swap.revision) == (SwapState.DONE, NEW)
