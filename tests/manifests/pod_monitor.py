"""The Prometheus operator's PodMonitor as far as these manifests use it."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tests.manifests.knative_service import Metadata, Strict, Text, Texts


class SecretKey(Strict):
    name: Text
    key: Text


class Authorization(Strict):
    type: Literal["Bearer"] = "Bearer"
    credentials: SecretKey


class Endpoint(Strict):
    port: Text
    path: Annotated[str, StringConstraints(pattern="^/")] = "/metrics"
    interval: Annotated[str, StringConstraints(pattern=r"^[0-9]+(ms|s|m|h)$")] = "30s"
    authorization: Authorization | None = None


class Selector(Strict):
    match_labels: Texts


class PodMonitorSpec(Strict):
    selector: Selector
    pod_metrics_endpoints: Annotated[list[Endpoint], Field(min_length=1)]
    pod_target_labels: list[Text] = Field(default_factory=list)


class PodMonitor(Strict):
    """``PodMonitor`` of ``monitoring.coreos.com/v1``."""

    api_version: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: PodMonitorSpec
