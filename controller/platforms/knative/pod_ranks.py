"""Says which pods a scale-down takes first: by the deletion cost that a ReplicaSet honours."""

import asyncio
import logging
from collections.abc import Sequence

from controller.platforms.knative.kube_client import KubeClient
from controller.platforms.knative.kube_errors import KubeError, NotPermitted, ObjectUnknown
from controller.platforms.knative.kube_resources import PODS
from controller.platforms.knative.mirror import Mirror
from controller.platforms.knative.pod_reading import DELETION_COST, is_finished

log = logging.getLogger(__name__)

GIVEN_WITHIN_S = 5.0
"""A step waits for it: what an API server has not taken by then is left."""


class PodRanks:
    """Patches pods, where that changes anything. Needs the right to."""

    def __init__(self, client: KubeClient, pods: Mirror) -> None:
        self._client = client
        self._pods = pods
        self._warned = False

    async def give(self, instances: Sequence[str], cost: str | None) -> None:
        """Give pods the cost of the finished, or take it away; those that are gone are passed over."""
        try:
            async with asyncio.timeout(GIVEN_WITHIN_S):
                await self._patch_all(instances, cost)
        except TimeoutError:
            log.warning("the API server is slow: some of %d replicas keep their deletion cost", len(instances))

    async def _patch_all(self, instances: Sequence[str], cost: str | None) -> None:
        patch = {"metadata": {"annotations": {DELETION_COST: cost}}}
        for instance in instances:
            known = self._pods.objects.get(instance)
            if known is None or is_finished(known) == (cost is not None):
                continue
            try:
                self._pods.take(await self._client.merge_patch(PODS, instance, patch))
            except ObjectUnknown:
                continue
            except NotPermitted as error:
                if not self._warned:
                    log.warning("%s; until then a scale-down may take a busy replica before an idle one", error)
                self._warned = True
                return
            except KubeError as error:
                log.warning("replica %s keeps its deletion cost: %s", instance, error)
