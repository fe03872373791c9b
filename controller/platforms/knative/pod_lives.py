"""Remembers the lives of pods beyond their end, as far as a watch has shown them."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from controller.platforms.base import ReplicaLife
from controller.platforms.knative.kube_resources import KubeObject, labels_of
from controller.platforms.knative.pod_reading import SERVICE_LABEL, pod_life, ready_since
from shared.contracts.stage import Stage

NUM_ENDED = 10_000
"""Lives of ended pods that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod as last seen."""

    pod: KubeObject
    ready_at: float | None
    ended_at: float | None = None
    inferred: bool = False


class PodLives:
    """What a mirror of the pods tells, by the pods' uids."""

    def __init__(self, clock: Callable[[], float], *, num_ended: int = NUM_ENDED) -> None:
        self._clock = clock
        self._living: dict[str, SeenPod] = {}
        self._ended: deque[SeenPod] = deque(maxlen=num_ended)

    def changed(self, pod: KubeObject) -> None:
        """A pod was seen."""
        uid = _uid(pod)
        known = self._living.get(uid)
        ready_at = known.ready_at if known is not None and known.ready_at is not None else ready_since(pod)
        self._living[uid] = SeenPod(pod=pod, ready_at=ready_at)

    def gone(self, pod: KubeObject, seen: bool) -> None:
        """A pod is no more. Where its end was not seen, it was there at the last look and is not at this one."""
        last = self._living.pop(_uid(pod), None) or SeenPod(pod=pod, ready_at=ready_since(pod))
        self._ended.append(replace(last, pod=pod, ended_at=self._clock(), inferred=not seen))

    def lives(self, stages: Mapping[str, tuple[Stage, ...]]) -> list[ReplicaLife]:
        """The lives of pods of these functions, the ended ones first. ``stages`` by the function's name."""
        return [
            pod_life(
                seen.pod,
                stages[labels_of(seen.pod).get(SERVICE_LABEL, "")],
                ready_at=seen.ready_at,
                ended_at=seen.ended_at,
                inferred=seen.inferred,
            )
            for seen in (*self._ended, *self._living.values())
            if labels_of(seen.pod).get(SERVICE_LABEL, "") in stages
        ]


def _uid(pod: KubeObject) -> str:
    return str(pod["metadata"]["uid"])
