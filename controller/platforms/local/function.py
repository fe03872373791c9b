"""One function on this machine, as a Knative Service: its revisions, and which of them a request goes to."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller.platforms.base import FunctionState, ReplicaLife, RevisionState
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.place import Place
from controller.platforms.local.replica import ReplicaState
from controller.platforms.local.replica_set import Template
from controller.platforms.local.revision import Revision
from controller.platforms.local.revision_garbage import outdated
from controller.platforms.local.traffic import Share, check_revisions, choose, percentages, resolve, tagged
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A raised minimum."""

    num_replicas: int
    until: float
    """Loop time."""


class Function:
    """Owns the revisions. A template change makes a new one; traffic moves to it only when it is ready."""

    def __init__(
        self,
        manifest: FunctionManifest,
        env: Mapping[str, str],
        place: Place,
        *,
        on_ended: Callable[[ReplicaLife], None],
    ) -> None:
        self._loop = place.loop
        self._place = place
        self._on_ended = on_ended
        self._revisions: dict[str, Revision] = {}
        self._generation = 0
        self._holds: dict[Stage, Hold] = {}
        self.manifest = manifest
        """The latest one that was read."""
        self._latest_ready = ""
        self._shares: tuple[Share, ...] = ()
        self._create_revision(env)

    @property
    def revisions(self) -> Mapping[str, Revision]:
        """By name, the oldest first."""
        return self._revisions

    @property
    def main(self) -> Revision:
        """The revision that gets most of the requests, the newest of equal ones."""
        shared = percentages(self._shares)
        newest_first = reversed(self._revisions.values())
        return max(newest_first, key=lambda revision: shared.get(revision.name, -1))

    def hosts(self) -> dict[str, str]:
        """First labels of its hosts, with the tag that each stands for; empty for the function's own name."""
        name = self.manifest.name
        return {name: "", **{f"{tag}-{name}": tag for tag in tagged(self._shares)}}

    def choose_revision(self, tag: str = "") -> Revision:
        """The revision of one request: the tag's, or one by the percentages."""
        name = tagged(self._shares)[tag] if tag else choose(self._shares, self._place.random.random())
        return self._revisions[name]

    def state(self, url: str) -> FunctionState:
        """What it looks like now: counts over all revisions, the rest of the main one."""
        main = self.main
        states = [replica.state for revision in self._revisions.values() for replica in revision.replicas.active]
        return FunctionState(
            name=self.manifest.name,
            stages=self.manifest.stages,
            url=url,
            revision=main.name,
            image=main.manifest.image,
            ready=not main.failure,
            reason=main.failure,
            num_replicas=len(states),
            num_ready=states.count(ReplicaState.READY),
            num_pending=states.count(ReplicaState.PENDING),
            num_in_flight=sum(revision.num_in_flight for revision in self._revisions.values()),
            num_queued=sum(revision.num_queued for revision in self._revisions.values()),
            min_scale=main.min_scale,
            max_scale=main.scaling.max_scale,
            revisions=self._revision_states(),
            activator_in_path=main.activator_in_path,
        )

    def lives(self) -> Iterable[ReplicaLife]:
        """Lives of the replicas that have not ended."""
        return [life for revision in self._revisions.values() for life in revision.replicas.lives()]

    def check(self, manifest: FunctionManifest) -> None:
        """Raises ``TrafficRefused`` where the manifest's traffic names a revision that ``apply`` would not find."""
        coming = [self._name(self._generation + 1)] if manifest.template != self.manifest.template else []
        check_revisions(manifest.traffic, [*self._revisions, *coming])

    def apply(self, manifest: FunctionManifest, env: Mapping[str, str]) -> None:
        """Follow a manifest that was read again and checked: another template is another revision."""
        changed = manifest.template != self.manifest.template
        self.manifest = manifest
        if changed:
            self._create_revision(env)
        else:
            self._route()

    def hold(self, stage: Stage, num_replicas: int, *, until: float) -> None:
        """Raise the main revision's minimum for a stage until a time; 0 withdraws it."""
        held = self._holds.get(stage)
        if num_replicas > (held.num_replicas if held else 0):
            for revision in self._revisions.values():
                revision.replicas.unfinish()
        if num_replicas > 0:
            self._holds[stage] = Hold(num_replicas=num_replicas, until=until)
        else:
            self._holds.pop(stage, None)
        self._tell_revisions()

    def finish(self, instances: Iterable[InstanceId]) -> None:
        """These replicas have no more to do."""
        for revision in self._revisions.values():
            revision.replicas.finish(instances)

    def release(self, *, grace_s: float) -> None:
        """Withdraw every hold and end all replicas within ``grace_s``; who waits gets 503.

        A new revision that has yet to show whether it becomes ready is let be.
        """
        self._holds.clear()
        self._tell_revisions()
        routed = percentages(self._shares)
        for name, revision in self._revisions.items():
            if revision.is_ready or name in routed:
                revision.release("released", grace_s=grace_s)

    async def stop(self, *, grace_s: float) -> None:
        """End all replicas and start no more."""
        stops = [revision.stop("platform stopped", grace_s=grace_s) for revision in self._revisions.values()]
        await asyncio.gather(*stops)

    def report(self) -> None:
        """Once a second."""
        for revision in self._revisions.values():
            revision.report()

    def tick(self) -> None:
        """Let every revision decide."""
        self._tell_revisions()
        for revision in list(self._revisions.values()):
            revision.tick()
        self._sweep()

    def reconcile(self) -> None:
        """What another replica has left may let one of these start."""
        for revision in list(self._revisions.values()):
            revision.reconcile()

    def _name(self, generation: int) -> str:
        return f"{self.manifest.name}-{generation:05d}"

    def _create_revision(self, env: Mapping[str, str]) -> None:
        self._generation += 1
        template = Template(revision=self._name(self._generation), manifest=self.manifest, env=env)
        revision = Revision(template, self._place, on_ready=self._route, on_ended=self._on_ended)
        self._revisions[revision.name] = revision
        self._route()
        revision.reconcile()

    def _route(self) -> None:
        """Take up the traffic that the manifest asks for, once all its revisions are ready."""
        ready = [name for name, revision in self._revisions.items() if revision.is_ready]
        self._latest_ready = ready[-1] if ready else ""
        # Before the first revision is ready requests wait for it, where a cluster's ingress would answer 404.
        latest = self._latest_ready or next(reversed(self._revisions))
        shares = resolve(self.manifest.traffic, latest=latest)
        if not self._shares or all(self._revisions[share.revision].is_ready for share in shares):
            self._shares = shares
        self._tell_revisions()

    def _tell_revisions(self) -> None:
        """Each hears whether requests can reach it, and the main one of the minimum that is held."""
        now = self._loop.time()
        self._holds = {stage: hold for stage, hold in self._holds.items() if hold.until > now}
        held = max((hold.num_replicas for hold in self._holds.values()), default=0)
        main, routed = self.main, percentages(self._shares)
        newest = next(reversed(self._revisions))
        for name, revision in list(self._revisions.items()):
            # The newest has yet to show whether it becomes ready.
            reachable = name in routed or (name == newest and not revision.is_ready)
            revision.follow(reachable=reachable, raised_minimum=held if revision is main else 0)

    def _sweep(self) -> None:
        """Forget old revisions, as soon as they have no replicas any more."""
        referenced = {*percentages(self._shares), *self._named(), self._latest_ready, next(reversed(self._revisions))}
        for name in outdated(list(self._revisions), referenced):
            if not any(True for _ in self._revisions[name].replicas.all):
                del self._revisions[name]

    def _named(self) -> Iterable[str]:
        return (target.revision for target in self.manifest.traffic if target.revision is not None)

    def _revision_states(self) -> tuple[RevisionState, ...]:
        shared = percentages(self._shares)
        tags: dict[str, list[str]] = {}
        for tag, name in tagged(self._shares).items():
            tags.setdefault(name, []).append(tag)
        return tuple(
            RevisionState(
                name=name,
                percent=shared.get(name, 0),
                tags=tuple(tags.get(name, ())),
                ready=revision.is_ready,
                reason=revision.failure,
                num_replicas=len(revision.replicas.active),
            )
            for name, revision in self._revisions.items()
        )
