"""The local platform's functions in virtual time, with pods that take as long as real ones."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

from controller.platforms.base import ReplicaLife
from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.local.function_set import FunctionSet
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.place import Place
from controller.platforms.local.revision import Revision
from controller.platforms.local.scaling_annotations import PREFIX, parse_scaling
from controller.platforms.simulated.clock import EPOCH, virtual_now
from shared.contracts.stage import Stage
from tests.simulation.knative.paced_pods import PacedPods

NAME = "rollout"
FIRST = f"{NAME}-00001"
AT_ZERO = replace(KNATIVE, initial_scale=0, allow_zero_initial_scale=True)
"""Knative's defaults but for the first scale, so that a scenario begins at zero."""
DRAIN_S = 30.0
"""How long Knative's queue-proxy keeps a pod that is told to end."""


def function(concurrency: int = 1, *, name: str = NAME, template: str = "1", **annotations: str) -> FunctionManifest:
    """A function with these annotations, whose dashes are written as underscores."""
    given = {key.replace("_", "-"): value for key, value in annotations.items()}
    return FunctionManifest(
        name=name,
        image="pod",
        command=("serve",),
        stages=(Stage(name),),
        scaling=parse_scaling(given, container_concurrency=concurrency, cluster=AT_ZERO),
        timeout_s=600.0,
        template=template,
    )


class Cluster:
    """Functions, and requests to them that last for a given time."""

    def __init__(self, functions: FunctionSet, pods: PacedPods) -> None:
        self.functions = functions
        self.pods = pods
        self._noise = Random(0)

    @property
    def now(self) -> float:
        """Virtual time in seconds, from 0."""
        return asyncio.get_running_loop().time()

    def apply(self, *manifests: FunctionManifest) -> None:
        """Follow manifests, as ``kubectl apply`` does."""
        self.functions.apply({m.name: m for m in manifests}, {m.name: {} for m in manifests})

    def annotate(self, revision: str = FIRST, **annotations: str | None) -> None:
        """Patch a revision's annotations, whose dashes are written as underscores."""
        changes = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.functions.annotate_revision(revision, changes)

    def revision(self, name: str = FIRST) -> Revision:
        """A revision of the first function."""
        return self.functions.functions[NAME].revisions[name]

    def send(self, duration_s: float, host: str = NAME) -> "asyncio.Task[str]":
        """Start a request; its result is the name of the revision that served it."""
        return asyncio.create_task(self._serve(duration_s, host))

    def lives(self) -> list[ReplicaLife]:
        """Lives of all pods, with times from 0."""
        return [_from_zero(life) for life in self.functions.lives()]

    def num_pods(self) -> int:
        """Pods that are not terminating."""
        return sum(life.draining_at is None and life.ended_at is None for life in self.functions.lives())

    async def _serve(self, duration_s: float, host: str) -> str:
        found = self.functions.route(host, b"/")
        assert found is not None, host
        async with found[0].admit():
            await asyncio.sleep(duration_s)
        return found[0].name


def _from_zero(life: ReplicaLife) -> ReplicaLife:
    times = ("scheduled_at", "started_at", "ready_at", "draining_at", "ended_at")
    known: Iterable[tuple[str, float | None]] = ((name, getattr(life, name)) for name in times)
    return replace(life, **{name: time - EPOCH for name, time in known if time is not None})  # type: ignore[arg-type]


@asynccontextmanager
async def cluster(
    *manifests: FunctionManifest, pods: PacedPods | None = None, drain_s: float = DRAIN_S, seed: int = 0
) -> AsyncIterator[Cluster]:
    """A cluster at rest for longer than the grace period. The seed draws the phases of its reports and its ticks."""
    noise = Random(seed)
    pods = pods or PacedPods(start_s=2.8)
    place = Place(starter=pods, clock=virtual_now, queue_limit=10_000, drain_quiet_s=drain_s, random=noise)
    functions = FunctionSet(place, num_ended_lives=10_000)
    made = Cluster(functions, pods)
    made.apply(*manifests)
    await asyncio.sleep(noise.uniform(0.05, 0.95))
    functions.start(tick_after_s=noise.uniform(0.0, 2.0))
    await asyncio.sleep(60.0 + noise.uniform(0.0, 2.0))
    try:
        yield made
    finally:
        await functions.stop(grace_s=0.0)
