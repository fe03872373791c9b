from typing import Any

import pytest

from controller.platforms.knative.function_reading import (
    address_of,
    asked_revision,
    asks,
    host_of,
    limits_of,
    main_revision,
    read_function,
    stages_of,
)
from shared.contracts.stage import Stage
from tests.unit.controller.platforms.knative.objects import Object, condition, pod, revision, service


@pytest.mark.parametrize(
    ("found", "stages"),
    [
        (service("rollout"), (Stage.ROLLOUT,)),
        (service("learner-and-rollout", stages="learner, rollout"), (Stage.LEARNER, Stage.ROLLOUT)),
        (service("reward", stages="critic"), (Stage.CRITIC,)),
        (service("shop"), ()),
        (service("shop", stages="paying"), ()),
    ],
)
def test_a_service_serves_what_it_lists_or_is_named_after(found: Object, stages: tuple[Stage, ...]) -> None:
    assert stages_of(found) == stages


def test_the_main_revision_gets_most_requests() -> None:
    split = [
        {"revisionName": "a-1", "percent": 10},
        {"revisionName": "a-2", "percent": 90},
        {"revisionName": "a-3", "tag": "t"},
    ]
    assert main_revision(service(traffic=split)) == "a-2"
    assert main_revision(service(traffic=[])) == "rollout-00001"
    assert main_revision(service(status={})) == ""


def test_requests_reach_a_revision_when_the_ingress_has_followed() -> None:
    def routed(status: str, **fields: Any) -> Object:
        found = service(**fields)
        found["status"]["conditions"] = [condition("Ready", "False"), condition("RoutesReady", status)]
        return found

    assert asks(routed("True"), "rollout-00001")
    assert not asks(routed("Unknown"), "rollout-00001")
    assert not asks(routed("True"), "rollout-00002")
    assert asks(routed("False", traffic=[]), "rollout-00001"), "it gets them as soon as it is ready for the first time"
    assert asked_revision(routed("False", traffic=[])) == ""


def test_limits_are_the_revisions_own() -> None:
    limits = limits_of(revision(min_scale="1", max_scale="8", window="15s", concurrency=2))
    assert (limits.min_scale, limits.max_scale, limits.container_concurrency, limits.window_s) == (1, 8, 2, 15.0)
    limits = limits_of(revision(max_scale="many", window="1m30s", concurrency=0))
    assert (limits.min_scale, limits.max_scale, limits.container_concurrency, limits.window_s) == (0, 0, 0, 90.0)
    assert limits_of(revision()).window_s == 60.0


def test_addresses_inside_and_at_an_ingress() -> None:
    assert address_of(service()) == "http://rollout.rlhfless.svc.cluster.local"
    assert host_of(service()) == "rollout.rlhfless.example.com"
    local = service(status={"url": "http://rollout.rlhfless.svc.cluster.local"})
    assert host_of(local) == "rollout.rlhfless.svc.cluster.local"
    assert (address_of(service(status={})), host_of(service(status={}))) == ("", "")


def test_a_function_that_works() -> None:
    waiting = pod("rollout-00001-b", conditions=[condition("PodScheduled", "True"), condition("Ready", "False")])
    state = read_function(service(), [revision(max_scale="8")], [pod(), waiting], num_calls=3)
    assert (state.name, state.stages, state.revision) == ("rollout", (Stage.ROLLOUT,), "rollout-00001")
    assert (state.ready, state.reason, state.image) == (True, "", "there/image@sha256:1")
    assert (state.num_replicas, state.num_ready, state.num_pending) == (2, 1, 0)
    assert (state.num_in_flight, state.num_queued, state.max_scale) == (1, 2, 8)
    [one] = state.revisions
    assert (one.name, one.percent, one.ready, one.num_replicas) == ("rollout-00001", 100, True, 2)


FAILED = condition("Ready", "False", "RevisionFailed", "initial scale was never achieved")
PULL = pod(conditions=[condition("PodScheduled", "True")], state={"waiting": {"reason": "ImagePullBackOff"}})


@pytest.mark.parametrize(
    ("found", "revisions", "pods", "said"),
    [
        (service(ready=FAILED), [revision(ready=FAILED)], [PULL], "ImagePullBackOff of container function"),
        (service(ready=FAILED), [revision(ready=FAILED)], [], "RevisionFailed: initial scale was never achieved"),
        (service(ready=condition("Ready", "Unknown", "Deploying")), [revision()], [], "Deploying"),
        (service(status={}), [], [], "Knative has not made it ready yet"),
    ],
)
def test_a_function_that_does_not_work_says_why(
    found: Object, revisions: list[Object], pods: list[Object], said: str
) -> None:
    state = read_function(found, revisions, pods, num_calls=0)
    assert not state.ready
    assert state.reason == said


def test_the_trouble_of_a_revision_without_requests_is_its_own() -> None:
    new = revision("rollout-00002", ready=FAILED)
    broken = pod("rollout-00002-x", revision="rollout-00002", state={"waiting": {"reason": "CrashLoopBackOff"}})
    state = read_function(service(), [revision(), new], [pod(), broken], num_calls=0)
    assert state.ready
    assert [(one.name, one.ready, one.reason) for one in state.revisions] == [
        ("rollout-00001", True, ""),
        ("rollout-00002", False, "RevisionFailed: initial scale was never achieved"),
    ]
