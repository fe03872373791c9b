"""Lowers minima that were raised for a time that is over, whoever raised them."""

import logging
from collections.abc import Collection

from controller.platforms.knative.holding import HELD_BY, is_overdue, lowered
from controller.platforms.knative.kube_client import KubeClient, Patch
from controller.platforms.knative.kube_errors import ObjectUnknown
from controller.platforms.knative.kube_resources import REVISIONS, KubeObject, annotations_of, name_of

log = logging.getLogger(__name__)


async def sweep(client: KubeClient, now: float, *, spared: Collection[str] = ()) -> tuple[str, ...]:
    """Lower every overdue minimum of the namespace but those of the ``spared`` revisions; names of the lowered ones.

    A minimum that is raised again meanwhile stays. Raises ``KubeError``.
    """
    swept: list[str] = []

    def lower(revision: KubeObject) -> Patch | None:
        return lowered(revision) if is_overdue(revision, now) else None

    for revision in (await client.list(REVISIONS)).objects:
        name = name_of(revision)
        if name in spared or not is_overdue(revision, now):
            continue
        try:
            await client.edit(REVISIONS, name, lower)
        except ObjectUnknown:
            continue
        log.warning(
            "lowered the minimum of %s: %s held it longer than it said", name, annotations_of(revision).get(HELD_BY)
        )
        swept.append(name)
    return tuple(swept)
