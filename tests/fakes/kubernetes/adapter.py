"""The platform's adapter on a fake cluster, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from controller.platforms.base import PlatformReply
from controller.platforms.knative.access import KubeAccess
from controller.platforms.knative.credentials import StaticToken
from controller.platforms.knative.platform import KnativePlatform
from controller.platforms.knative.settings import KnativeSettings
from controller.platforms.local.capacity import Machine
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import ReplicaView, StageFunction
from shared.contracts.stage import Stage
from tests.fakes.kubernetes.api_server import NAMESPACE, ApiServer
from tests.fakes.kubernetes.asgi import AsgiTransport
from tests.fakes.kubernetes.knative import Knative, knative
from tests.fakes.kubernetes.object_store import Object
from tests.simulation.knative.paced_pods import PacedPods

HOLDER = "controller-0"
TOKEN = "the-service-account"
LARGE = Machine(num_cpus=10**6, memory_bytes=2**50, num_gpus=10**6)
REST_S = 60.0
"""How long the cluster is left alone at first: longer than its grace period."""


async def sleeping(path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
    """A stage function that takes as many seconds as the body says."""
    await asyncio.sleep(float(body or b"0"))
    return PlatformReply(status=200, headers={"x-instance": replica.instance}, body=replica.revision.encode())


EVERY_STAGE: Mapping[Stage, StageFunction] = dict.fromkeys(Stage, sleeping)


@dataclass
class Stand:
    """One adapter and its cluster."""

    platform: KnativePlatform
    cluster: Knative
    api_network: AsgiTransport
    call_network: AsgiTransport

    @property
    def api(self) -> ApiServer:
        """The cluster's API server."""
        return self.cluster.api

    def call(self, stage: Stage, duration_s: float, *, timeout_s: float = 600.0) -> "asyncio.Task[PlatformReply]":
        """Start a call that takes so long."""
        return asyncio.create_task(
            self.platform.invoke(stage, stage.route, str(duration_s).encode(), headers={}, timeout_s=timeout_s)
        )


def settings_of(*, ingress_url: str = "", server: str = "http://kubernetes", holder: str = HOLDER) -> KnativeSettings:
    """Settings that lead to a fake cluster."""
    access = KubeAccess(server=server, namespace=NAMESPACE, tls=None, credentials=StaticToken(TOKEN))
    return KnativeSettings(access=access, holder=holder, ingress_url=ingress_url)


@asynccontextmanager
async def stand(
    *services: Object,
    answers: Mapping[Stage, StageFunction] = EVERY_STAGE,
    pods: PacedPods | None = None,
    ingress_url: str = "",
    rest_s: float = REST_S,
    forbidden: Sequence[tuple[str, str]] = (),
    **options: Any,
) -> AsyncIterator[Stand]:
    """An adapter on a cluster with these Services, at rest. In virtual time."""
    pods = pods or PacedPods(start_s=2.8, machine=LARGE)
    async with knative(answers, services, clock=virtual_now, pods=pods, **options) as cluster:
        await asyncio.sleep(rest_s)
        cluster.api.token = TOKEN
        cluster.api.forbidden.update(forbidden)
        api_network, call_network = AsgiTransport(cluster.api), AsgiTransport(cluster.ingress)
        async with KnativePlatform(
            settings_of(ingress_url=ingress_url),
            clock=virtual_now,
            api_transport=api_network,
            call_transport=call_network,
        ) as platform:
            yield Stand(platform, cluster, api_network, call_network)
