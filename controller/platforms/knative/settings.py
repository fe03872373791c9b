"""What the platform on a cluster needs to know."""

from dataclasses import dataclass

from controller.platforms.knative.access import KubeAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class KnativeSettings:
    """One namespace of one cluster."""

    access: KubeAccess
    holder: str
    """Name that raised minima carry: this controller's."""
    ingress_url: str = ""
    """URL of the ingress, for a controller outside the cluster: functions are then told apart by the Host header.
    Empty: functions are called at their own URLs."""
