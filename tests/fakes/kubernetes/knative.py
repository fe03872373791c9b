"""Knative behind the API server: Services become Revisions and pods, annotations scale them, requests reach them.

Autoscaler, activator and ReplicaSet are the local platform's own, which ``tests/simulation/knative`` holds against what
was measured on a cluster. Only pods are not processes: they take their time to start and end, and stage functions of
this process answer for them.
"""

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

from controller.platforms.base import PlatformReply, ReplicaLife
from controller.platforms.local.activator import QueueFull, TurnedAway
from controller.platforms.local.cluster_defaults import KNATIVE, ClusterDefaults
from controller.platforms.local.function_set import FunctionSet
from controller.platforms.local.manifest import FunctionManifest
from controller.platforms.local.manifest_parser import parse_manifest
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.place import Place
from controller.platforms.local.replica import Clock
from controller.platforms.local.revision import Revision
from controller.platforms.local.scaling_annotations import PREFIX, AnnotationRefused, edit_scaling
from controller.platforms.simulated.function_spec import StageFunction
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.api_server import NAMESPACE, PODS, REVISIONS, SERVICES, AdmissionRefused, ApiServer
from tests.fakes.kubernetes.asgi import Message, Receive, Send, body_of, headers_of, respond
from tests.fakes.kubernetes.object_store import Kind, Object
from tests.simulation.knative.paced_pods import PacedPods, PodAddress

AT_ZERO = replace(KNATIVE, initial_scale=0, allow_zero_initial_scale=True)
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
SHOW_EVERY_S = 0.1
"""How soon a change shows in the API's objects."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod that a request runs on, as a stage's function sees it. A ``ReplicaView``."""

    life: ReplicaLife
    pods: PacedPods

    @property
    def instance(self) -> InstanceId:
        return self.life.instance

    @property
    def revision(self) -> str:
        return self.life.revision

    @property
    def started_at(self) -> float:
        return self.life.started_at or 0.0

    @property
    def ready_at(self) -> float:
        return self.life.ready_at or 0.0

    @property
    def is_alive(self) -> bool:
        return self.life.instance in self.pods.pods


class Knative:
    """The cluster. ``start`` before use, in the loop that it lives in."""

    def __init__(
        self,
        answers: Mapping[Stage, StageFunction],
        *,
        clock: Clock,
        pods: PacedPods,
        api: ApiServer | None = None,
        defaults: ClusterDefaults = AT_ZERO,
        drain_s: float = 30.0,
        ingress_lag_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        """``ingress_lag_s``: how long an ingress takes to follow a Service's traffic, which its status shows before."""
        self.defaults = defaults
        self.api = api or ApiServer()
        self.api.admit, self.api.committed, self.api.deleted = self._admit, self._committed, self._deleted
        self.pods = pods
        self.answers = dict(answers)
        self.troubles: dict[str, tuple[str, str]] = {}
        """Reason and message for which a container of a revision's pods waits."""
        self.activator_is_down = False
        self.hosts: list[str] = []
        """Host of every request."""
        self.agents: set[str] = set()
        """User agents that requests came from."""
        place = Place(starter=pods, clock=clock, queue_limit=10_000, drain_quiet_s=drain_s, random=Random(seed))
        self.functions = FunctionSet(place, num_ended_lives=10_000)
        self._clock = clock
        self._manifests: dict[str, FunctionManifest] = {}
        self._annotations: dict[str, dict[str, str]] = {}
        self._observed: dict[str, int] = {}
        self._ingress_lag_s = ingress_lag_s
        self._programmed_at: dict[str, float] = {}
        self._showing: asyncio.Task[None] | None = None
        self._shown: list[Any] = []
        self._stopping: set[asyncio.Task[None]] = set()

    def apply(self, service: Object) -> None:
        """Create or change a Service, as ``kubectl apply`` does. Raises ``AdmissionRefused``."""
        name = service["metadata"]["name"]
        known = self.api.store.get(SERVICES, name) or {}
        metadata = {**known.get("metadata", {}), **service["metadata"], "namespace": NAMESPACE}
        metadata["generation"] = known.get("metadata", {}).get("generation", 0) + 1
        merged = {**known, **service, "metadata": metadata}
        self._admit(SERVICES, known, merged)
        self.api.store.put(SERVICES, merged)
        self._committed(SERVICES, known, merged)

    async def start(self, *, tick_after_s: float = 0.0) -> None:
        """Let the autoscaler work."""
        self.functions.start(tick_after_s=tick_after_s)
        self._showing = asyncio.create_task(self._show_forever())
        self.show()

    async def stop(self) -> None:
        """End everything."""
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.wait([self._showing])
        await self.functions.stop(grace_s=0.0)

    def revision(self, name: str) -> Revision:
        """A revision by name. Raises ``KeyError``."""
        return next(
            function.revisions[name] for function in self.functions.functions.values() if name in function.revisions
        )

    def lives(self, function: str) -> list[ReplicaLife]:
        """Lives of a function's pods, the ended ones too."""
        return [life for life in self.functions.lives() if life.function == function]

    def num_pods(self, function: str) -> int:
        """Pods of a function that are not terminating."""
        return sum(life.draining_at is None and life.ended_at is None for life in self.lives(function))

    async def ingress(self, scope: Message, receive: Receive, send: Send) -> None:
        """Kourier and the activator, as an ASGI application: the Host says which function is meant."""
        headers = headers_of(scope)
        body = await body_of(receive)
        self.hosts.append(headers["host"])
        self.agents.add(headers.get("user-agent", ""))
        found = None if self.activator_is_down else self.functions.route(headers["host"], scope["path"].encode())
        if self.activator_is_down:
            return await respond(send, 503, b"no healthy upstream")
        if found is None:
            return await respond(send, 404, b"")
        answer = await self._answer(found[0], scope["path"], body, headers)
        await respond(send, answer.status, answer.body, answer.headers)

    async def _answer(self, revision: Revision, path: str, body: bytes, headers: Mapping[str, str]) -> PlatformReply:
        try:
            async with asyncio.timeout(revision.timeout_s), revision.admit() as stream:
                return await self._serve(cast(PodAddress, stream), revision, path, body, headers)
        except TimeoutError:
            return PlatformReply(status=504, headers={}, body=b"activator request timeout")
        except (QueueFull, TurnedAway):
            return PlatformReply(status=503, headers={}, body=b"pending request queue full")

    async def _serve(
        self, address: PodAddress, revision: Revision, path: str, body: bytes, headers: Mapping[str, str]
    ) -> PlatformReply:
        assert address.pod is not None
        instance = next((name for name, pod in self.pods.pods.items() if pod is address.pod), None)
        life = next((life for life in revision.replicas.lives() if life.instance == instance), None)
        if life is None:
            return PlatformReply(status=502, headers={}, body=b"the pod is gone")
        stage = revision.manifest.stages[0]
        answering = asyncio.ensure_future(self.answers[stage](path, body, headers, Pod(life, self.pods)))
        ending = asyncio.ensure_future(asyncio.shield(address.pod.exit_status))
        try:
            await asyncio.wait({answering, ending}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            return PlatformReply(status=502, headers={}, body=b"dial tcp: connection refused")
        finally:
            answering.cancel()
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({answering})

    def show(self) -> None:
        """Write what there is now into the API's objects."""
        store = self.api.store
        state = [self.functions.lives(), dict(self.troubles), copy.deepcopy(self._annotations), dict(self._observed)]
        state += [function.state("") for function in self.functions.functions.values()]
        state += [self._is_programmed(name) for name in self.functions.functions]
        if state == self._shown:
            return
        self._shown = state
        for name, function in self.functions.functions.items():
            for revision in function.revisions.values():
                store.put(REVISIONS, self._revision_object(name, revision))
            for stale in [
                each["metadata"]["name"]
                for each in store.all(REVISIONS)
                if each["metadata"]["labels"]["serving.knative.dev/service"] == name
                and each["metadata"]["name"] not in function.revisions
            ]:
                store.delete(REVISIONS, stale)
            service = store.get(SERVICES, name)
            assert service is not None
            store.put(SERVICES, {**service, "status": self._service_status(name)})
        living = {life.instance: life for life in self.functions.lives() if life.ended_at is None}
        for pod in store.all(PODS):
            if pod["metadata"]["name"] not in living:
                store.delete(PODS, pod["metadata"]["name"])
        for life in living.values():
            known = store.get(PODS, life.instance) or {"metadata": {}}
            store.put(PODS, self._pod_object(life, known["metadata"].get("annotations") or {}))

    async def _show_forever(self) -> None:
        while True:
            await asyncio.sleep(SHOW_EVERY_S)
            self.show()

    def _admit(self, kind: Kind, old: Object, new: Object) -> None:
        """The webhook."""
        try:
            if kind == SERVICES:
                parse_manifest(json.dumps(_applied(new)), source="service", cluster=self.defaults)
            elif kind == REVISIONS:
                if old.get("spec") != new.get("spec"):
                    raise AdmissionRefused("spec is immutable")
                edit_scaling(self.revision(new["metadata"]["name"]).scaling, _changes(old, new))
        except (ManifestRefused, AnnotationRefused) as error:
            raise AdmissionRefused(str(error)) from error

    def _committed(self, kind: Kind, old: Object, new: Object) -> None:
        """The controllers."""
        name, annotations = new["metadata"]["name"], new["metadata"].get("annotations") or {}
        if kind == SERVICES:
            self._observed[name] = new["metadata"].get("generation", 1)
            if old.get("spec", {}).get("traffic") != new["spec"].get("traffic"):
                self._programmed_at[name] = self._clock() + self._ingress_lag_s
            manifest = parse_manifest(json.dumps(_applied(new)), source="service", cluster=self.defaults)
            self._manifests[name] = manifest
            self.functions.apply({name: manifest}, {name: {}})
            for revision in self.functions.functions[name].revisions:
                template = new["spec"]["template"]["metadata"].get("annotations") or {}
                self._annotations.setdefault(revision, dict(template))
        elif kind == REVISIONS:
            self._annotations[name] = dict(annotations)
            changes = {f"{PREFIX}{key}": value for key, value in _changes(old, new).items()}
            if changes:
                self.functions.annotate_revision(name, changes)
        elif kind == PODS and int(annotations.get(DELETION_COST, "0")) < 0:
            function = self.functions.functions[new["metadata"]["labels"]["serving.knative.dev/service"]]
            function.finish([name])

    def _deleted(self, kind: Kind, name: str) -> None:
        """A Revision's Deployment goes with it."""
        assert kind == REVISIONS, f"nobody deletes {kind[1]}"
        for function in self.functions.functions.values():
            revision = function._revisions.pop(name, None)
            if revision is not None:
                self._stopping.add(asyncio.create_task(revision.stop("deleted", grace_s=30.0)))

    def _revision_object(self, function: str, revision: Revision) -> Object:
        failed = revision.failure or self.troubles.get(revision.name, ("", ""))[1]
        status = "True" if revision.is_ready and not failed else ("False" if failed else "Unknown")
        return {
            "metadata": {
                "name": revision.name,
                "namespace": NAMESPACE,
                "labels": {
                    "serving.knative.dev/service": function,
                    "serving.knative.dev/configurationGeneration": revision.name.rpartition("-")[2].lstrip("0"),
                },
                "annotations": dict(self._annotations[revision.name]),
            },
            "spec": {
                "containerConcurrency": revision.manifest.container_concurrency,
                "containers": [{"image": revision.manifest.image}],
                "timeoutSeconds": int(revision.timeout_s),
            },
            "status": {"conditions": [{"type": "Ready", "status": status, "message": failed}]},
        }

    def _service_status(self, name: str) -> Object:
        function = self.functions.functions[name]
        state = function.state("")
        traffic: list[dict[str, Any]] = [
            {"revisionName": each.name, "percent": each.percent, **({"tag": each.tags[0]} if each.tags else {})}
            for each in state.revisions
            # None goes to one that has never been ready.
            if each.ready and (each.percent or each.tags)
        ]
        newest = next(reversed(function.revisions))
        ready = [each for each, revision in function.revisions.items() if revision.is_ready]
        # The newest revision has to become ready before the Service is.
        waiting = function.revisions[newest].failure or ("" if newest in ready else "RevisionMissing")
        return {
            "url": f"http://{name}.{NAMESPACE}.example.com",
            "address": {"url": f"http://{name}.{NAMESPACE}.svc.cluster.local"},
            "latestCreatedRevisionName": newest,
            "latestReadyRevisionName": ready[-1] if ready else "",
            "traffic": traffic,
            "observedGeneration": self._observed[name],
            "conditions": [
                {"type": "Ready", "status": "True" if not waiting else "Unknown", "message": waiting},
                {
                    "type": "RoutesReady",
                    "status": "True" if traffic and self._is_programmed(name) else "Unknown",
                    "message": waiting,
                },
            ],
        }

    def _is_programmed(self, service: str) -> bool:
        return self._clock() >= self._programmed_at.get(service, 0.0)

    def _pod_object(self, life: ReplicaLife, annotations: Mapping[str, str]) -> Object:
        placed = life.started_at is not None
        ready = life.ready_at is not None and life.draining_at is None
        trouble = self.troubles.get(life.revision)
        container: Object = {"name": "function", "ready": ready, "state": {"running": {}}}
        if trouble is not None:
            container["state"] = {"waiting": {"reason": trouble[0], "message": trouble[1]}}
        conditions = [
            _condition(
                "PodScheduled",
                placed,
                life.started_at,
                reason="Unschedulable",
                message=life.reason.removeprefix("unschedulable: "),
            ),
            _condition("Ready", ready, life.ready_at),
        ]
        metadata: Object = {
            "name": life.instance,
            "namespace": NAMESPACE,
            "uid": f"uid-of-{life.instance}",
            "creationTimestamp": _text(life.scheduled_at),
            "labels": {
                "serving.knative.dev/service": life.function,
                "serving.knative.dev/revision": life.revision,
            },
            "annotations": dict(annotations),
        }
        if life.draining_at is not None:
            grace_s = int(self._manifests[life.function].timeout_s)
            metadata |= {
                "deletionTimestamp": _text(life.draining_at + grace_s),
                "deletionGracePeriodSeconds": grace_s,
            }
        resources = {"cpu": str(life.num_cpus), "nvidia.com/gpu": str(life.num_gpus)}
        return {
            "metadata": metadata,
            "spec": {"containers": [{"name": "function", "resources": {"requests": resources}}]},
            "status": {
                "phase": "Running" if placed else "Pending",
                "conditions": conditions,
                "containerStatuses": [container] if placed else [],
            },
        }


@contextlib.asynccontextmanager
async def knative(
    answers: Mapping[Stage, StageFunction], services: Sequence[Object], **options: Any
) -> AsyncIterator[Knative]:
    """A cluster with these Services, for as long as the context lasts."""
    cluster = Knative(answers, **options)
    for service in services:
        cluster.apply(service)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


def _applied(service: Object) -> Object:
    """A Service without what the server adds to it."""
    metadata = {key: value for key, value in service["metadata"].items() if key in ("name", "labels", "annotations")}
    return {key: value for key, value in service.items() if key != "status"} | {"metadata": metadata}


def _changes(old: Object, new: Object) -> dict[str, str | None]:
    """Autoscaling annotations that differ, without their prefix; None for those that are gone."""
    before, after = old["metadata"].get("annotations") or {}, new["metadata"].get("annotations") or {}
    keys = [key for key in {*before, *after} if key.startswith(PREFIX) and before.get(key) != after.get(key)]
    return {key.removeprefix(PREFIX): after.get(key) for key in keys}


def _condition(type: str, holds: bool, since: float | None, *, reason: str = "", message: str = "") -> Object:
    if holds:
        return {"type": type, "status": "True", "lastTransitionTime": None if since is None else _text(since)}
    return {"type": type, "status": "False", "reason": reason, "message": message}


def _text(unix_s: float) -> str:
    """A time as the API writes it: whole seconds."""
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
