"""Functions, their revisions and the traffic between them, in virtual time."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from controller.platforms.base import FunctionUnknown
from controller.platforms.local.function_set import RevisionUnknown
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.scaling_annotations import AnnotationRefused
from controller.platforms.local.traffic import TrafficTarget
from shared.contracts.stage import Stage
from tests.fakes.virtual import in_virtual_time
from tests.simulation.knative.cluster import FIRST, NAME, Cluster, cluster, function
from tests.simulation.knative.paced_pods import PacedPods

SECOND = "rollout-00002"


def manifest(template: str = "1", *traffic: TrafficTarget, **annotations: str) -> FunctionManifest:
    """A function that starts one pod before it is ready."""
    given = {"initial_scale": "1", "target_burst_capacity": "-1", "window": "6s", **annotations}
    made = function(1, template=template, **given)
    return replace(made, traffic=traffic) if traffic else made


def pinned(percent: int, revision: str = FIRST, tag: str = "") -> TrafficTarget:
    return TrafficTarget(percent=percent, revision=revision, tag=tag)


def shares(at: Cluster) -> dict[str, int]:
    state = at.functions.functions[NAME].state("")
    return {revision.name: revision.percent for revision in state.revisions}


@in_virtual_time
async def test_traffic_moves_to_a_new_revision_when_that_is_ready() -> None:
    async with cluster(manifest(), pods=PacedPods(start_s=5.0)) as at:
        at.apply(manifest("2"))
        await asyncio.sleep(4.0)
        assert await at.send(0.1) == FIRST
        await asyncio.sleep(2.0)
        assert shares(at) == {FIRST: 0, SECOND: 100}
        assert await at.send(0.1) == SECOND


@in_virtual_time
async def test_a_revision_that_does_not_become_ready_gets_no_traffic() -> None:
    pods = PacedPods(start_s=1.0, becomes_ready=lambda revision: revision != SECOND)
    async with cluster(manifest(), pods=pods) as at:
        at.apply(manifest("2"))
        await asyncio.sleep(700.0)
        assert shares(at) == {FIRST: 100, SECOND: 0}
        assert await at.send(0.1) == FIRST
        state = at.functions.functions[NAME].state("")
        assert state.ready
        assert ["not ready within 600 s" in each.reason for each in state.revisions] == [False, True]
        assert not [life for life in at.lives() if life.revision == SECOND and life.ended_at is None], "given up"
        at.apply(manifest("2", TrafficTarget(percent=100, tag="current")))
        assert await at.send(0.1, host="current-rollout") == FIRST, "the latest is the latest that is ready"
        at.apply(manifest("3"))
        await asyncio.sleep(5.0)
        assert await at.send(0.1) == "rollout-00003"


@in_virtual_time
async def test_an_initial_scale_of_zero_takes_the_traffic_at_once() -> None:
    async with cluster(manifest(initial_scale="0")) as at:
        at.apply(manifest("2", initial_scale="0"))
        assert shares(at) == {FIRST: 0, SECOND: 100}


@in_virtual_time
async def test_a_release_lets_a_coming_revision_be() -> None:
    async with cluster(manifest(min_scale="1"), pods=PacedPods(start_s=5.0)) as at:
        at.apply(manifest("2"))
        at.functions.of_stage(Stage.ROLLOUT).release(grace_s=1.0)
        await asyncio.sleep(1.1)
        assert {life.revision for life in at.lives() if life.ended_at is None} >= {SECOND}
        assert {life.reason for life in at.lives() if life.revision == FIRST and life.ended_at is not None} == {
            "released"
        }
        await asyncio.sleep(5.0)
        assert await at.send(0.1) == SECOND


@in_virtual_time
async def test_an_old_revision_finishes_its_requests_and_forgets_its_minimum() -> None:
    async with cluster(manifest(min_scale="2"), drain_s=0.0) as at:
        request = at.send(20.0)
        await asyncio.sleep(1.0)
        at.apply(manifest("2"))
        assert await request == FIRST
        await asyncio.sleep(15.0)
        assert not [life for life in at.lives() if life.revision == FIRST and life.ended_at is None]


@in_virtual_time
async def test_an_old_revision_can_be_pinned_and_come_back() -> None:
    async with cluster(manifest()) as at:
        at.apply(manifest("2"))
        await asyncio.sleep(100.0)
        at.apply(manifest("2", pinned(100)))
        assert await at.send(0.1) == FIRST
        assert shares(at) == {FIRST: 100, SECOND: 0}
        at.apply(manifest("2"))
        assert await at.send(0.1) == SECOND


@in_virtual_time
async def test_percentages_and_tags() -> None:
    async with cluster(manifest(max_scale="20")) as at:
        at.apply(manifest("2", pinned(25), TrafficTarget(percent=75), pinned(0, tag="old")))
        await asyncio.sleep(10.0)
        served = Counter(await asyncio.gather(*(at.send(0.01) for _ in range(200))))
        assert 35 <= served[FIRST] <= 65
        assert served[SECOND] == 200 - served[FIRST]
        assert await at.send(0.1, host="old-rollout.default.example.org") == FIRST
        assert at.functions.route("new-rollout", b"/") is None
        [first, _] = at.functions.functions[NAME].state("").revisions
        assert (first.percent, first.tags) == (25, ("old",))


@in_virtual_time
async def test_traffic_for_a_revision_that_there_is_not_is_refused_and_changes_nothing() -> None:
    async with cluster(manifest()) as at:
        with pytest.raises(ManifestRefused, match=r"spec\.traffic\[0\]\.revisionName: no revision 'rollout-00003'"):
            at.apply(manifest("2", pinned(100, "rollout-00003")))
        assert list(shares(at)) == [FIRST]
        at.apply(manifest("2", pinned(100, SECOND)))
        await asyncio.sleep(10.0)
        assert shares(at) == {FIRST: 0, SECOND: 100}
        with pytest.raises(ManifestRefused, match="no revision 'reward-00002'"):
            at.apply(replace(function(name="reward"), traffic=(pinned(100, "reward-00002"),)))


@in_virtual_time
async def test_a_pinned_revision_gets_no_traffic_before_it_is_ready() -> None:
    async with cluster(manifest(), pods=PacedPods(start_s=5.0)) as at:
        at.apply(manifest("2", pinned(100, SECOND)))
        assert shares(at) == {FIRST: 100, SECOND: 0}
        await asyncio.sleep(6.0)
        assert shares(at) == {FIRST: 0, SECOND: 100}


@in_virtual_time
async def test_old_revisions_are_forgotten_but_not_a_pinned_one() -> None:
    async with cluster(manifest(initial_scale="0")) as at:
        for number in range(2, 30):
            at.apply(manifest(str(number), pinned(0, tag="old"), TrafficTarget(percent=100), initial_scale="0"))
        await asyncio.sleep(5.0)
        names = list(shares(at))
        assert names[0] == FIRST
        assert names[1:] == [f"rollout-{number:05d}" for number in range(9, 30)]


@in_virtual_time
async def test_a_hold_raises_the_minimum_of_the_revision_that_serves() -> None:
    async with cluster(manifest(initial_scale="0"), drain_s=0.0) as at:
        rollout = at.functions.of_stage(Stage.ROLLOUT)
        rollout.hold(Stage.ROLLOUT, 3, until=at.now + 50.0)
        assert at.num_pods() == 3
        at.apply(manifest("2", initial_scale="0"))
        assert rollout.state("").min_scale == 3
        await asyncio.sleep(20.0)
        assert Counter(life.revision for life in at.lives() if life.ended_at is None) == {SECOND: 3}
        await asyncio.sleep(50.0)
        assert at.num_pods() == 0


@in_virtual_time
async def test_of_two_revisions_the_one_with_more_traffic_is_held() -> None:
    async with cluster(manifest(initial_scale="0"), drain_s=0.0) as at:
        at.apply(manifest("2", pinned(60), TrafficTarget(percent=40), initial_scale="0"))
        at.functions.of_stage(Stage.ROLLOUT).hold(Stage.ROLLOUT, 2, until=at.now + 50.0)
        await asyncio.sleep(10.0)
        assert Counter(life.revision for life in at.lives()) == {FIRST: 2}


@in_virtual_time
async def test_a_functions_own_name_comes_before_anothers_tag() -> None:
    other = replace(function(name="reward"), name="old-rollout")
    async with cluster(other, manifest("1", TrafficTarget(percent=100, tag="old"))) as at:
        found = at.functions.route("old-rollout", b"/")
        assert found is not None
        assert found[0].name == "old-rollout-00001"


@in_virtual_time
async def test_names_that_nobody_knows() -> None:
    async with cluster(manifest()) as at:
        with pytest.raises(RevisionUnknown, match="no revision 'rollout-00007'; there are rollout-00001"):
            at.annotate("rollout-00007", min_scale="1")
        with pytest.raises(AnnotationRefused, match="is unknown; is 'min-scale' meant"):
            at.annotate(minscale="1")
        with pytest.raises(FunctionUnknown, match="critic"):
            at.functions.of_stage(Stage.CRITIC)
