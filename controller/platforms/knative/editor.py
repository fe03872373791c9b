"""Changes Knative Services: the template makes revisions, the traffic names the one that is asked."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from controller.platforms.base import FunctionUnknown
from controller.platforms.editing import ChangeNotPermitted, ChangeRefused, ChangeUnanswered, FunctionChange, Proposal
from controller.platforms.knative.function_reading import asked_revision, asks
from controller.platforms.knative.kube_client import Edit, KubeClient
from controller.platforms.knative.kube_errors import KubeError, NotPermitted, ObjectUnknown, Rejected
from controller.platforms.knative.kube_resources import REVISIONS, SERVICES, KubeObject
from controller.platforms.knative.mirror import Mirror
from controller.platforms.knative.service_edits import changed, restored, routed

log = logging.getLogger(__name__)

NOTICED_WITHIN_S = 60.0
"""How long Knative may take to answer a changed Service with a revision's name, or with other traffic."""
LOOK_EVERY_S = 0.1


class KnativeEditor:
    """See ``FunctionEditor``. Its account needs patch of Services, and delete of Revisions to free what one that failed
    holds."""

    def __init__(self, client: KubeClient, services: Mirror, clock: Callable[[], float]) -> None:
        self._client = client
        self._services = services
        self._clock = clock
        self._templates: dict[str, Mapping[str, Any]] = {}
        """Templates from before a proposal, by its revision."""

    async def route(self, function: str, revision: str) -> None:
        """See ``FunctionEditor.route``."""
        patched = await self._edit(function, lambda service: routed(service, revision))
        await self._until(function, patched, lambda service: asks(service, revision), f"asks {revision}")

    async def propose(self, function: str, change: FunctionChange) -> Proposal:
        """See ``FunctionEditor.propose``."""
        found = await self._read(function)
        before, created, template = asked_revision(found), _created(found), found["spec"]["template"]
        if before:
            # Traffic that goes to the latest revision would move as soon as the new one is ready.
            await self.route(function, before)
        if changed(found, change) is None:
            return Proposal(function=function, before=before, revision=before or created)
        patched = await self._edit(function, lambda service: changed(service, change))
        await self._until(function, patched, lambda service: _created(service) != created, "has a new revision")
        revision = _created(self._services.objects[function])
        self._templates[revision] = template
        if not before and created:
            # It has never worked, and would hold until its progress deadline what the new one needs.
            await self._delete(created)
        return Proposal(function=function, before=before, revision=revision)

    async def withdraw(self, proposal: Proposal) -> str:
        """See ``FunctionEditor.withdraw``."""
        if proposal.before:
            await self.route(proposal.function, proposal.before)
        template = self._templates.pop(proposal.revision, None)
        if template is None:
            return proposal.revision
        # The template as it was makes the revision that failed neither routed nor the latest: then it may go.
        patched = await self._edit(proposal.function, lambda service: restored(template))
        await self._until(
            proposal.function, patched, lambda service: _created(service) != proposal.revision, "has its template back"
        )
        await self._delete(proposal.revision)
        return _created(self._services.objects[proposal.function])

    async def _delete(self, revision: str) -> None:
        """Knative lets a revision that never became ready try until its progress deadline, and hold its GPU."""
        try:
            await self._client.delete(REVISIONS, revision)
        except ObjectUnknown:
            return
        except KubeError as error:
            log.warning(
                "revision %s may hold its replica until its progress deadline: %s; or delete it by hand",
                revision,
                error,
            )

    async def _read(self, function: str) -> KubeObject:
        try:
            return await self._client.get(SERVICES, function)
        except ObjectUnknown as error:
            raise FunctionUnknown(f"there is no Service {function}") from error
        except KubeError as error:
            raise ChangeUnanswered(str(error)) from error

    async def _edit(self, function: str, edit: Edit) -> KubeObject:
        try:
            patched = await self._client.edit(SERVICES, function, edit)
        except ObjectUnknown as error:
            raise FunctionUnknown(f"there is no Service {function}") from error
        except Rejected as error:
            raise ChangeRefused(str(error)) from error
        except NotPermitted as error:
            raise ChangeNotPermitted(str(error)) from error
        except KubeError as error:
            raise ChangeUnanswered(str(error)) from error
        self._services.take(patched)
        return patched

    async def _until(self, function: str, patched: KubeObject, holds: Callable[[KubeObject], bool], what: str) -> None:
        """Wait until Knative's controllers have seen the change, and what it should lead to holds."""
        generation, give_up_at = patched["metadata"].get("generation", 0), self._clock() + NOTICED_WITHIN_S
        while True:
            service = self._services.objects.get(function)
            if service is not None:
                observed = (service.get("status") or {}).get("observedGeneration", 0)
                if observed >= generation and holds(service):
                    return
            if self._clock() > give_up_at:
                raise ChangeUnanswered(f"Knative did not show within {NOTICED_WITHIN_S:g} s that {function} {what}")
            await asyncio.sleep(LOOK_EVERY_S)


def _created(service: KubeObject) -> str:
    return str((service.get("status") or {}).get("latestCreatedRevisionName") or "")
