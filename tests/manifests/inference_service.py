"""KServe's InferenceService and ServingRuntime as far as these manifests use them.

Source: kserve/kserve 0.20.0, ``pkg/apis/serving/v1beta1`` and ``v1alpha1``.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from tests.manifests.knative_service import (
    Metadata,
    Mount,
    Probe,
    Resources,
    SecurityContext,
    Strict,
    Text,
    Texts,
    Variable,
    Volume,
)

Scale = Annotated[int, Field(ge=0)]


class RuntimePort(Strict):
    container_port: Annotated[int, Field(ge=1, le=65535)]
    name: Text = "http1"
    protocol: Literal["TCP"] = "TCP"


class RuntimeContainer(Strict):
    name: Literal["kserve-container"]
    image: Text
    command: list[str] = Field(default_factory=list)
    args: list[str] = Field(default_factory=list)
    env: list[Variable] = Field(default_factory=list)
    ports: list[RuntimePort] = Field(default_factory=list)
    resources: Resources = Resources()
    readiness_probe: Probe | None = None
    security_context: SecurityContext | None = None
    volume_mounts: list[Mount] = Field(default_factory=list)


class ModelFormat(Strict):
    name: Text
    version: str | None = None
    auto_select: bool | None = None
    priority: int | None = None


class ServingRuntimeSpec(Strict):
    supported_model_formats: Annotated[list[ModelFormat], Field(min_length=1)]
    protocol_versions: list[Literal["v1", "v2", "grpc-v1", "grpc-v2"]] = Field(default_factory=list)
    containers: Annotated[list[RuntimeContainer], Field(min_length=1, max_length=1)]
    volumes: list[Volume] = Field(default_factory=list)
    annotations: Texts = Field(default_factory=dict)
    labels: Texts = Field(default_factory=dict)
    multi_model: Literal[False] | None = None


class ServingRuntime(Strict):
    """``ServingRuntime`` of ``serving.kserve.io/v1alpha1``."""

    api_version: Literal["serving.kserve.io/v1alpha1"]
    kind: Literal["ServingRuntime"]
    metadata: Metadata
    spec: ServingRuntimeSpec


class FormatName(Strict):
    name: Text
    version: str | None = None


class Model(Strict):
    model_format: FormatName
    runtime: Text | None = None
    protocol_version: Literal["v1", "v2"] | None = None
    storage_uri: Annotated[str, StringConstraints(pattern=r"^(pvc|hf|s3|gs|https|oci)://.+")] | None = None
    args: list[str] = Field(default_factory=list)
    env: list[Variable] = Field(default_factory=list)
    resources: Resources = Resources()


class Predictor(Strict):
    min_replicas: Scale | None = None
    max_replicas: Scale | None = None
    container_concurrency: Annotated[int, Field(ge=0, le=1000)] | None = None
    timeout: Annotated[int, Field(ge=1)] | None = None
    scale_target: int | None = None
    scale_metric: Literal["concurrency", "rps", "cpu", "memory"] | None = None
    service_account_name: str = ""
    labels: Texts = Field(default_factory=dict)
    annotations: Texts = Field(default_factory=dict)
    automount_service_account_token: Literal[False] | None = None
    containers: list[RuntimeContainer] = Field(default_factory=list)
    volumes: list[Volume] = Field(default_factory=list)
    model: Model | None = None

    @model_validator(mode="after")
    def _one_implementation(self) -> Self:
        if bool(self.containers) == (self.model is not None):
            raise ValueError("has a model or containers, and not both")
        return self


class InferenceServiceSpec(Strict):
    predictor: Predictor


class InferenceService(Strict):
    """``InferenceService`` of ``serving.kserve.io/v1beta1``."""

    api_version: Literal["serving.kserve.io/v1beta1"]
    kind: Literal["InferenceService"]
    metadata: Metadata
    spec: InferenceServiceSpec
