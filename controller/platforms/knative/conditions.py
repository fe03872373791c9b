"""The conditions of a Kubernetes object. Pure."""

from dataclasses import dataclass

from controller.platforms.knative.kube_resources import KubeObject
from controller.platforms.knative.times import from_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that the object says of itself. ``status`` is ``True``, ``False`` or ``Unknown``."""

    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    since: float | None = None
    """Unix seconds at which the status became what it is."""

    @property
    def text(self) -> str:
        """Reason and message, as far as there are any."""
        return ": ".join(part for part in (self.reason, self.message) if part)


def condition(found: KubeObject, kind: str) -> Condition:
    """The condition of a type; unknown where the object says nothing."""
    for entry in (found.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            return Condition(
                status=str(entry.get("status", "Unknown")),
                reason=str(entry.get("reason") or ""),
                message=str(entry.get("message") or ""),
                since=from_text(entry.get("lastTransitionTime")),
            )
    return Condition()
