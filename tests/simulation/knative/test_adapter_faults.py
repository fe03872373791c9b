"""What goes wrong on clusters, as public reports have it, and what the adapter makes of it."""

import asyncio
import logging

import pytest

from controller.platforms.base import FunctionUnknown, FunctionUnreachable
from controller.platforms.knative import kube_resources
from controller.platforms.knative.access import KubeAccess
from controller.platforms.knative.credentials import StaticToken
from controller.platforms.knative.holding import HELD_BY, HOLD_UNTIL
from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError, NotPermitted
from controller.platforms.knative.platform import KnativePlatform
from controller.platforms.knative.sweeping import sweep
from controller.platforms.local.capacity import Machine
from controller.platforms.simulated.clock import virtual_now
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.adapter import LARGE, TOKEN, Stand, settings_of, stand
from tests.fakes.kubernetes.api_server import NAMESPACE, PODS, REVISIONS, SERVICES, Fault
from tests.fakes.kubernetes.asgi import AsgiTransport
from tests.fakes.kubernetes.object_store import Object
from tests.fakes.kubernetes.services import base_service
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.paced_pods import PacedPods

ROLLOUT = base_service("rollout", window="6s")
FIRST = "rollout-00001"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


def annotations(at: Stand) -> dict[str, str]:
    """The revision's annotations as the API server has them."""
    revision = at.api.store.get(REVISIONS, FIRST)
    assert revision is not None
    return revision["metadata"]["annotations"]


async def another(at: Stand, holder: str = "controller-1") -> KnativePlatform:
    """One more controller on the same cluster, started."""
    platform = KnativePlatform(
        settings_of(holder=holder),
        clock=virtual_now,
        api_transport=AsgiTransport(at.api),
        call_transport=AsgiTransport(at.cluster.ingress),
    )
    await platform.start()
    return platform


async def killed(platform: KnativePlatform) -> None:
    """End a controller without its last words."""
    assert platform._holding is not None
    platform._holding.cancel()
    await asyncio.wait([platform._holding])
    platform._holding = None
    await platform.stop()


@in_virtual_time
async def test_without_the_right_to_patch_revisions_calls_make_the_replicas(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with stand(ROLLOUT, forbidden=[("patch", "revisions")]) as at:
        for _ in range(3):
            await at.platform.scale(Stage.ROLLOUT, 4, hold_until=at.platform.now() + 60)
            await asyncio.sleep(5.0)
        assert at.cluster.num_pods("rollout") == 0
        calls = [at.call(Stage.ROLLOUT, 20.0) for _ in range(4)]
        await asyncio.sleep(8.0)
        assert at.cluster.num_pods("rollout") == 4, "target-utilization-percentage is 100: no more than calls"
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 4
        assert len(at.api.patches("revisions")) == 1, "it is not asked for again and again"
    warned = [record.getMessage() for record in caplog.records if "may not patch revisions" in record.getMessage()]
    assert len(warned) == 1
    assert "the scale is left to Knative" in warned[0]


@in_virtual_time
async def test_a_right_that_comes_later_is_used() -> None:
    async with stand(ROLLOUT, forbidden=[("patch", "revisions")]) as at:
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=at.platform.now() + 900)
        await asyncio.sleep(10.0)
        at.api.forbidden.clear()
        await asyncio.sleep(400.0)
        assert annotations(at)[MIN_SCALE] == "2"


@in_virtual_time
async def test_a_dead_controllers_minimum_is_lowered_by_the_next_one() -> None:
    async with stand(ROLLOUT) as at:
        dying = await another(at)
        await dying.scale(Stage.ROLLOUT, 4, hold_until=at.platform.now() + 60)
        await asyncio.sleep(5.0)
        assert annotations(at)[HELD_BY] == "controller-1"
        await killed(dying)
        await asyncio.sleep(50.0)
        assert annotations(at)[MIN_SCALE] == "4", "it is held until its time is over"
        await asyncio.sleep(40.0)
        assert annotations(at)[MIN_SCALE] == "0"
        assert HOLD_UNTIL not in annotations(at)
        await asyncio.sleep(60.0)
        assert at.cluster.num_pods("rollout") == 0


@in_virtual_time
async def test_a_sweep_without_a_controller_lowers_what_is_overdue_only() -> None:
    async with stand(ROLLOUT, base_service("reward")) as at:
        dying = await another(at)
        await at.platform.stop()
        await dying.scale(Stage.ROLLOUT, 2, hold_until=virtual_now() + 60)
        await dying.scale(Stage.REWARD, 1, hold_until=virtual_now() + 600)
        await asyncio.sleep(100.0)
        await killed(dying)
        # The hold ended in the controller's life: raised again, as if it had died before.
        service = await another(at, "controller-2")
        await service.scale(Stage.ROLLOUT, 2, hold_until=virtual_now() + 5)
        await asyncio.sleep(1.0)
        await killed(service)
        await asyncio.sleep(10.0)
        access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=StaticToken(TOKEN))
        async with KubeClient(access, transport=AsgiTransport(at.api)) as client:
            assert await sweep(client, virtual_now()) == (FIRST,)
            assert await sweep(client, virtual_now()) == ()
        assert annotations(at)[MIN_SCALE] == "0"
        reward = at.api.store.get(REVISIONS, "reward-00001")
        assert reward is not None
        assert reward["metadata"]["annotations"][MIN_SCALE] == "1"


@in_virtual_time
async def test_a_minimum_that_is_raised_again_while_it_is_swept_stays() -> None:
    async with stand(ROLLOUT) as at:
        dying = await another(at)
        await dying.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 5)
        await asyncio.sleep(1.0)
        await killed(dying)
        await asyncio.sleep(12.0)

        def raise_again(kind: tuple[str, str], name: str) -> None:
            at.api.on_patch = lambda kind, name: None
            found = at.api.store.get(kind, name)
            assert found is not None
            found["metadata"]["annotations"][HOLD_UNTIL] = "2099-01-01T00:00:00Z"
            at.api.store.put(kind, found)

        at.api.on_patch = raise_again
        access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=StaticToken(TOKEN))
        async with KubeClient(access, transport=AsgiTransport(at.api)) as client:
            await sweep(client, virtual_now())
        assert at.api.patches("revisions")
        found = at.api.store.get(REVISIONS, FIRST)
        assert found is not None
        assert found["metadata"]["annotations"][MIN_SCALE] == "4"


@in_virtual_time
async def test_a_controller_that_leaves_does_not_lower_what_the_next_one_holds() -> None:
    async with stand(ROLLOUT) as at:
        leaving = await another(at)
        await leaving.scale(Stage.ROLLOUT, 2, hold_until=virtual_now() + 600)
        await asyncio.sleep(1.0)
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 600)
        await asyncio.sleep(1.0)
        await leaving.stop()
        assert (annotations(at)[MIN_SCALE], annotations(at)[HELD_BY]) == ("4", "controller-0")


@in_virtual_time
async def test_a_minimum_that_somebody_else_lowered_is_raised_again() -> None:
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 600)
        await asyncio.sleep(5.0)
        access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=StaticToken(TOKEN))
        async with KubeClient(access, transport=AsgiTransport(at.api)) as client:
            # Its clock is far ahead.
            assert await sweep(client, virtual_now() + 3600) == (FIRST,)
        await asyncio.sleep(40.0)
        assert annotations(at)[MIN_SCALE] == "4"


@in_virtual_time
async def test_stopping_lowers_what_was_raised() -> None:
    async with stand(ROLLOUT) as at:
        leaving = await another(at)
        await leaving.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 3600)
        await asyncio.sleep(5.0)
        await leaving.stop()
        assert annotations(at)[MIN_SCALE] == "0"


@in_virtual_time
async def test_no_more_than_the_revisions_maximum_is_asked_for() -> None:
    async with stand(base_service("rollout", max_scale="3")) as at:
        await at.platform.scale(Stage.ROLLOUT, 64, hold_until=virtual_now() + 60)
        await asyncio.sleep(5.0)
        assert annotations(at)[MIN_SCALE] == "3"
        assert at.cluster.num_pods("rollout") == 3


@in_virtual_time
async def test_a_pod_without_a_place_waits_and_says_why() -> None:
    """Reports 11923, 14862: a node is still to come, and the revision is called failed meanwhile."""
    pods = PacedPods(start_s=2.8, machine=Machine(num_cpus=1.0, memory_bytes=2**40, num_gpus=0))
    async with stand(ROLLOUT, pods=pods) as at:
        await at.platform.scale(Stage.ROLLOUT, 3, hold_until=virtual_now() + 600)
        await asyncio.sleep(10.0)
        [state] = await at.platform.functions()
        assert (state.num_ready, state.num_pending) == (2, 1)
        assert state.reason.startswith("unschedulable: 0.4 cpus")
        waiting = [life for life in await at.platform.replicas() if life.started_at is None]
        assert len(waiting) == 1
        assert waiting[0].reason == state.reason


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            ("ImagePullBackOff", "Back-off pulling image"),
            "ImagePullBackOff of container function: Back-off pulling image",
        ),
        (("CrashLoopBackOff", "back-off 5m0s"), "CrashLoopBackOff of container function: back-off 5m0s"),
    ],
)
def test_a_replica_that_cannot_start_is_named_while_a_call_waits(trouble: tuple[str, str], said: str) -> None:
    """Reports 14157, 13677: all looks ready, and requests hang until their timeout."""

    @in_virtual_time
    async def scenario() -> None:
        pods = PacedPods(start_s=2.8, machine=LARGE, becomes_ready=lambda revision: False)
        async with stand(ROLLOUT, pods=pods) as at:
            at.cluster.troubles[FIRST] = trouble
            call = at.call(Stage.ROLLOUT, 1.0, timeout_s=50.0)
            await asyncio.sleep(10.0)
            [state] = await at.platform.functions()
            assert (state.ready, state.num_ready, state.num_queued) == (False, 0, 1)
            assert state.reason == said
            with pytest.raises(FunctionUnreachable, match="no answer within 50 s"):
                await call

    scenario()


@in_virtual_time
async def test_a_request_is_cut_by_the_platform_and_told_so() -> None:
    """Reports 15352, 12564: the limit counts the queue and the cold start."""
    async with stand(ROLLOUT) as at:
        sent_at = virtual_now()
        reply = await at.call(Stage.ROLLOUT, 900.0, timeout_s=700.0)
        assert (reply.status, reply.body) == (504, b"activator request timeout")
        assert virtual_now() - sent_at == pytest.approx(600.0, abs=1.0)


@in_virtual_time
async def test_more_than_ten_minutes_are_refused() -> None:
    """Measured: ``timeoutSeconds: 900`` is refused by the webhook (600 at most)."""
    async with stand(ROLLOUT) as at:
        service = at.api.store.get(SERVICES, "rollout")
        assert service is not None
        patch: Object = {"spec": {"template": {"spec": {**service["spec"]["template"]["spec"], "timeoutSeconds": 900}}}}
        access = KubeAccess(server="http://kubernetes", namespace=NAMESPACE, tls=None, credentials=StaticToken(TOKEN))
        async with KubeClient(access, transport=AsgiTransport(at.api)) as client:
            with pytest.raises(KubeError, match="timeoutSeconds"):
                await client.merge_patch(kube_resources.SERVICES, "rollout", patch)


@in_virtual_time
async def test_an_activator_that_is_gone_is_an_answer_to_try_again() -> None:
    async with stand(ROLLOUT) as at:
        at.cluster.activator_is_down = True
        assert (await at.call(Stage.ROLLOUT, 0.0)).status == 503
        at.call_network.is_down = True
        with pytest.raises(FunctionUnreachable, match="rollout: connection refused"):
            await at.call(Stage.ROLLOUT, 0.0)


@in_virtual_time
async def test_a_pod_that_dies_in_the_middle_is_an_answer_to_try_again() -> None:
    async with stand(ROLLOUT) as at:
        call = at.call(Stage.ROLLOUT, 60.0)
        await asyncio.sleep(10.0)
        [pod] = at.cluster.pods.pods.values()
        pod.kill()
        assert (await call).status == 502
        assert (await at.call(Stage.ROLLOUT, 0.0)).status == 200
        await asyncio.sleep(2.0)
        ended = [life for life in await at.platform.replicas() if life.ended_at is not None]
        assert len(ended) == 1


@in_virtual_time
async def test_the_activator_is_never_flooded() -> None:
    """Report 13583: it buffers without a limit of its own, and dies of it."""
    async with stand(base_service("rollout", max_scale="2")) as at:
        calls = [at.call(Stage.ROLLOUT, 5.0) for _ in range(30)]
        await asyncio.sleep(4.0)
        [state] = await at.platform.functions()
        assert state.num_in_flight + state.num_queued == 3
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 30


@in_virtual_time
async def test_an_ingress_is_asked_by_host_and_never_as_a_probe() -> None:
    async with stand(ROLLOUT, ingress_url="http://10.0.0.1:8080/") as at:
        assert (await at.call(Stage.ROLLOUT, 0.0)).status == 200
        assert at.cluster.hosts == ["rollout.rlhfless.example.com"]
        assert not any(agent.startswith("kube-probe/") for agent in at.cluster.agents)


@in_virtual_time
async def test_a_stage_without_a_service_is_unknown() -> None:
    async with stand(ROLLOUT) as at:
        with pytest.raises(FunctionUnknown, match="no Service in namespace rlhfless serves the stage critic"):
            await at.call(Stage.CRITIC, 0.0)
        with pytest.raises(FunctionUnknown):
            await at.platform.scale(Stage.CRITIC, 1, hold_until=virtual_now() + 5)


@in_virtual_time
async def test_a_service_that_comes_later_is_found() -> None:
    async with stand(ROLLOUT) as at:
        at.cluster.apply(base_service("reward"))
        await asyncio.sleep(1.0)
        assert (await at.call(Stage.REWARD, 0.0)).status == 200


@in_virtual_time
async def test_an_api_server_that_is_away_delays_minima_and_nothing_else() -> None:
    async with stand(ROLLOUT) as at:
        at.api_network.is_down = True
        at.api.break_watches()
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 300)
        call = at.call(Stage.ROLLOUT, 1.0)
        assert (await call).status == 200
        await asyncio.sleep(60.0)
        at.api_network.is_down = False
        await asyncio.sleep(20.0)
        assert annotations(at)[MIN_SCALE] == "4"
        [state] = await at.platform.functions()
        assert state.num_ready == 4


@in_virtual_time
async def test_an_api_server_that_is_away_does_not_hold_up_a_step() -> None:
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 300)
        await asyncio.sleep(5.0)
        instances = [life.instance for life in await at.platform.replicas()]
        assert len(instances) == 4
        await at.platform.retire(Stage.ROLLOUT, instances[:1])
        at.api_network.is_down = True
        asked_at = virtual_now()
        await at.platform.retire(Stage.ROLLOUT, instances)
        await at.platform.scale(Stage.ROLLOUT, 5, hold_until=virtual_now() + 300)
        assert virtual_now() - asked_at <= 10.0


@in_virtual_time
async def test_a_controller_that_starts_before_the_api_server_waits_for_it() -> None:
    async with stand(ROLLOUT) as at:
        network = AsgiTransport(at.api)
        network.is_down = True
        starting = KnativePlatform(settings_of(), clock=virtual_now, api_transport=network)
        start = asyncio.create_task(starting.start())
        await asyncio.sleep(120.0)
        assert not start.done()
        network.is_down = False
        async with asyncio.timeout(20.0):
            await start
        assert [state.name for state in await starting.functions()] == ["rollout"]
        await starting.stop()


@in_virtual_time
async def test_conflicts_and_a_busy_api_server_do_not_lose_a_minimum() -> None:
    async with stand(ROLLOUT) as at:
        at.api.faults = [
            Fault(status=409, verb="patch"),
            Fault(status=429, verb="patch", headers={"retry-after": "2"}),
            Fault(status=500, verb="patch", applied=True),
            Fault(status=503, verb="get", plural="revisions"),
        ]
        await at.platform.scale(Stage.ROLLOUT, 4, hold_until=virtual_now() + 300)
        await asyncio.sleep(20.0)
        assert annotations(at)[MIN_SCALE] == "4"
        await at.platform.scale(Stage.ROLLOUT, 0, hold_until=0)
        await asyncio.sleep(20.0)
        assert annotations(at)[MIN_SCALE] == "0"


@in_virtual_time
async def test_pods_that_may_not_be_read_leave_the_rest_working(caplog: pytest.LogCaptureFixture) -> None:
    async with stand(ROLLOUT, forbidden=[("list", "pods"), ("watch", "pods"), ("patch", "pods")]) as at:
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=virtual_now() + 60)
        assert (await at.call(Stage.ROLLOUT, 0.0)).status == 200
        assert list(await at.platform.replicas()) == []
        await at.platform.retire(Stage.ROLLOUT, ["rollout-00001-x"])
        assert at.cluster.num_pods("rollout") == 2
    assert "may not list pods" in caplog.text


@in_virtual_time
async def test_services_that_may_not_be_read_end_the_start() -> None:
    with pytest.raises(NotPermitted, match="may not list services"):
        async with stand(ROLLOUT, forbidden=[("list", "services")]):
            raise AssertionError("it has started")


@in_virtual_time
async def test_retiring_pods_that_are_gone_or_not_ours_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async with stand(ROLLOUT) as at:
        await at.platform.scale(Stage.ROLLOUT, 2, hold_until=virtual_now() + 60)
        await asyncio.sleep(5.0)
        first, second = [life.instance for life in await at.platform.replicas()]
        at.api.store.delete(PODS, first)
        await at.platform.retire(Stage.ROLLOUT, [first, "nobody", second])
        await at.platform.retire(Stage.ROLLOUT, [second])
        assert [asked.name for asked in at.api.patches("pods")].count(second) == 1
        at.api.forbidden.add(("patch", "pods"))
        await at.platform.scale(Stage.ROLLOUT, 3, hold_until=virtual_now() + 60)
        await asyncio.sleep(5.0)
        for life in await at.platform.replicas():
            await at.platform.retire(Stage.ROLLOUT, [life.instance])
    assert caplog.text.count("may not patch pods") == 1
