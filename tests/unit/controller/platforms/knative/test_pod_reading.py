import pytest

from controller.platforms.knative.pod_lives import PodLives
from controller.platforms.knative.pod_reading import is_active, is_finished, is_ready, trouble
from shared.contracts.stage import Stage
from tests.unit.controller.platforms.knative.objects import Object, condition, pod

NOON = 1_796_040_000.0
STAGES = {"rollout": (Stage.ROLLOUT,)}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pod(), ""),
        (
            pod(conditions=[condition("PodScheduled", "False", "Unschedulable", "0/3 nodes: 3 Insufficient gpu")]),
            "unschedulable: 0/3 nodes: 3 Insufficient gpu",
        ),
        (
            pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}),
            "ImagePullBackOff of container function: no such tag",
        ),
        (pod(state={"waiting": {"reason": "ContainerCreating"}}), ""),
        (
            pod(state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
            "container function: exited with code 137 (OOMKilled)",
        ),
        (pod(state={"terminated": {"exitCode": 0, "reason": "Completed"}}), ""),
        (pod(phase="Failed") | {"status": {"phase": "Failed", "message": "evicted: disk"}}, "evicted: disk"),
    ],
)
def test_a_pods_trouble_is_named(found: Object, said: str) -> None:
    assert trouble(found) == said


def test_a_crash_loop_says_how_the_last_one_ended() -> None:
    crashing = pod(state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}})
    crashing["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert trouble(crashing) == "CrashLoopBackOff of container function: exited with code 1"


def test_a_pod_that_drains_is_active_no_more() -> None:
    assert is_active(pod())
    assert is_ready(pod())
    draining = pod(deletionTimestamp="2026-11-30T12:11:00Z", deletionGracePeriodSeconds=600)
    assert not is_active(draining)
    assert not is_ready(draining)
    assert not is_active(pod(phase="Failed"))
    assert not is_ready(pod(conditions=[]))


def test_a_pod_that_has_no_more_to_do_is_marked() -> None:
    assert is_finished(pod(annotations={"controller.kubernetes.io/pod-deletion-cost": "-100"}))
    assert not is_finished(pod())


def test_the_life_of_a_pod_from_its_creation_to_its_end() -> None:
    now = NOON + 10
    lives = PodLives(lambda: now)
    lives.changed(pod())
    [life] = lives.lives(STAGES)
    assert (life.instance, life.function, life.revision) == ("rollout-00001-a", "rollout", "rollout-00001")
    assert (life.scheduled_at, life.started_at, life.ready_at) == (NOON, NOON + 2, NOON + 5)
    assert (life.num_cpus, life.num_gpus, life.stages) == (1.525, 2, (Stage.ROLLOUT,))
    assert (life.draining_at, life.ended_at) == (None, None)
    draining = pod(
        conditions=[condition("PodScheduled", "True", since="2026-11-30T12:00:02Z"), condition("Ready", "False")],
        deletionTimestamp="2026-11-30T12:11:00Z",
        deletionGracePeriodSeconds=600,
    )
    lives.changed(draining)
    [life] = lives.lives(STAGES)
    assert (life.ready_at, life.draining_at, life.reason) == (NOON + 5, NOON + 60, "scaled down")
    now = NOON + 95
    lives.gone(draining, True)
    [life] = lives.lives(STAGES)
    assert (life.ended_at, life.inferred) == (NOON + 95, False)


def test_an_end_that_nobody_saw_is_inferred() -> None:
    lives = PodLives(lambda: NOON + 500)
    lives.changed(pod())
    lives.gone(pod(), False)
    [life] = lives.lives(STAGES)
    assert (life.ended_at, life.inferred) == (NOON + 500, True)


def test_pods_of_other_services_are_not_ours() -> None:
    lives = PodLives(lambda: NOON)
    lives.changed(pod())
    assert lives.lives({"reward": (Stage.REWARD,)}) == []


def test_a_pod_that_is_over_before_it_is_deleted_ended_when_its_container_did() -> None:
    lives = PodLives(lambda: NOON + 100)
    lives.changed(pod(phase="Failed", state={"terminated": {"exitCode": 1, "finishedAt": "2026-11-30T12:00:30Z"}}))
    [life] = lives.lives(STAGES)
    assert life.ended_at == NOON + 30


@pytest.mark.parametrize(
    ("status", "ended_at"),
    [
        ({"reason": "UnexpectedAdmissionError", "startTime": "2026-11-30T12:00:03Z"}, NOON + 3),
        ({"reason": "Evicted", "containerStatuses": [], "conditions": [condition("Ready", "False")]}, NOON + 5),
        ({"reason": "OutOfcpu"}, NOON),
    ],
)
def test_a_pod_that_failed_without_a_container_is_over(status: Object, ended_at: float) -> None:
    lives = PodLives(lambda: NOON + 100)
    lives.changed(pod() | {"status": {"phase": "Failed", **status}})
    [life] = lives.lives(STAGES)
    assert life.ended_at == ended_at
    assert life.reason == status["reason"]
