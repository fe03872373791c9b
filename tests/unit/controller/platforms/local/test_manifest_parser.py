"""Manifests: the deployed ones, each field that is read, what is refused and what is only named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.platforms.local.cluster_defaults import KNATIVE
from controller.platforms.local.manifest import ConfigReference, FunctionManifest, Resources
from controller.platforms.local.manifest_parser import parse_manifest
from controller.platforms.local.manifest_section import ManifestRefused
from controller.platforms.local.traffic import ALL_TO_LATEST, TrafficTarget
from shared.contracts.stage import Stage

BASE = Path(__file__).parents[5] / "deploy" / "base" / "functions"
Edit = Callable[[dict[str, Any]], object]


def service() -> dict[str, Any]:
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "rollout"},
        "spec": {
            "template": {
                "metadata": {"annotations": {}},
                "spec": {
                    "containers": [{"image": "registry/function:1", "command": ["python", "-m", "functions.main"]}]
                },
            }
        },
    }


def template(document: dict[str, Any]) -> dict[str, Any]:
    return document["spec"]["template"]


def container(document: dict[str, Any]) -> dict[str, Any]:
    return template(document)["spec"]["containers"][0]


def parsed(edit: Edit = lambda document: None) -> FunctionManifest:
    document = service()
    edit(document)
    return parse_manifest(yaml.safe_dump(document), source="rollout.yaml")


@pytest.mark.parametrize("file", sorted(BASE.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_deployed_manifests_are_understood(file: Path) -> None:
    manifest = parse_manifest(file.read_text(), source=file.name)
    assert manifest.name == file.stem
    assert Stage(file.stem) in manifest.stages
    assert manifest.readiness_path == "/readyz"
    assert manifest.timeout_s == manifest.response_start_timeout_s
    assert manifest.container_concurrency > 0
    assert manifest.resources.num_cpus > 0
    assert "REDIS_PASSWORD" in manifest.references


def test_the_smallest_manifest() -> None:
    manifest = parsed()
    assert manifest.name == "rollout"
    assert manifest.stages == (Stage.ROLLOUT,)
    assert manifest.command == ("python", "-m", "functions.main")
    assert (manifest.timeout_s, manifest.response_start_timeout_s) == (300, 300)
    assert manifest.container_concurrency == 0
    assert manifest.readiness_path is None
    assert manifest.resources == Resources()
    assert manifest.not_honoured == ()


def test_container() -> None:
    def edit(document: dict[str, Any]) -> None:
        container(document).update(
            args=["--fast"],
            env=[
                {"name": "RLHFLESS_STAGES", "value": "learner, prefill"},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "rlhfless", "key": "password"}}},
                {
                    "name": "MODE",
                    "valueFrom": {"configMapKeyRef": {"name": "all", "key": "mode", "optional": True}},
                },
                {"name": "EMPTY"},
            ],
            resources={"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"}},
            readinessProbe={"httpGet": {"path": "/readyz", "port": 8080}},
            ports=[{"name": "http1", "containerPort": 8080}],
        )

    manifest = parsed(edit)
    assert manifest.command == ("python", "-m", "functions.main", "--fast")
    assert manifest.stages == (Stage.LEARNER, Stage.PREFILL)
    assert manifest.env == {"RLHFLESS_STAGES": "learner, prefill", "EMPTY": ""}
    assert manifest.references == {
        "PASSWORD": ConfigReference(name="rlhfless/password"),
        "MODE": ConfigReference(name="all/mode", optional=True),
    }
    assert manifest.resources == Resources(num_cpus=0.5, memory_bytes=2**31, num_gpus=1)
    assert manifest.readiness_path == "/readyz"
    assert manifest.not_honoured == ()


def test_timeouts_and_annotations() -> None:
    def edit(document: dict[str, Any]) -> None:
        template(document)["spec"].update(containerConcurrency=2, timeoutSeconds=600, idleTimeoutSeconds=45)
        template(document)["metadata"]["annotations"] = {
            "autoscaling.knative.dev/max-scale": "4",
            "serving.knative.dev/progress-deadline": "30m",
            "rlhfless.dev/environment": "vllm",
        }

    manifest = parsed(edit)
    assert (manifest.timeout_s, manifest.idle_timeout_s) == (600, 45)
    assert manifest.response_start_timeout_s == 300, "Knative's trap: the second limit stays at 300 s"
    assert (manifest.scaling.container_concurrency, manifest.scaling.max_scale) == (2, 4)
    assert manifest.progress_deadline_s == 1800
    assert manifest.python_environment == "vllm"


def test_traffic() -> None:
    assert parsed().traffic == ALL_TO_LATEST
    manifest = parsed(put("spec.traffic", [{"revisionName": "rollout-00001", "percent": 100}]))
    assert manifest.traffic == (TrafficTarget(percent=100, revision="rollout-00001"),)
    assert manifest.template == parsed().template, "traffic makes no revision"


def test_a_clusters_defaults() -> None:
    text = yaml.safe_dump(service())
    assert parse_manifest(text, source="rollout.yaml").scaling.initial_scale == 0
    assert parse_manifest(text, source="rollout.yaml", cluster=KNATIVE).scaling.initial_scale == 1


def test_what_has_no_effect_is_named_by_its_path() -> None:
    def edit(document: dict[str, Any]) -> None:
        template(document)["spec"].update(automountServiceAccountToken=False, volumes=[], containerConcurency=3)
        container(document).update(
            securityContext={}, resources={"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
        )
        template(document)["metadata"]["annotations"]["example.org/owner"] = "me"

    assert set(parsed(edit).not_honoured) == {
        "spec.template.metadata.annotations.example.org/owner",
        "spec.template.spec.automountServiceAccountToken",
        "spec.template.spec.containerConcurency",
        "spec.template.spec.containers[0].resources.limits.memory",
        "spec.template.spec.containers[0].securityContext",
        "spec.template.spec.volumes",
    }


def put(path: str, value: object) -> Edit:
    """An edit that sets a dotted path, with ``0`` for a list's first."""

    def edit(document: dict[str, Any]) -> None:
        at: Any = document
        *parents, last = path.split(".")
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
        at[last] = value

    return edit


def scaling(key: str, value: str) -> Edit:
    return lambda document: template(document)["metadata"]["annotations"].update(
        {f"autoscaling.knative.dev/{key}": value}
    )


CONTAINER = "spec.template.spec.containers.0"


@pytest.mark.parametrize(
    ("edit", "field", "reason"),
    [
        (put("kind", "Deployment"), "kind", "must be Service"),
        (put("metadata.name", "Rollout_1"), "metadata.name", "lower case"),
        (
            put("metadata.annotations", {"autoscaling.knative.dev/min-scale": "1"}),
            "metadata.annotations.autoscaling.knative.dev/min-scale",
            "belongs to spec.template.metadata",
        ),
        (put("spec.traffic", [{"latestRevision": True, "percent": 50}]), "spec.traffic", "sum to 50"),
        (put("spec.traffic", [{"percent": 100, "tag": "A"}]), "spec.traffic[0].tag", "lower case"),
        (
            scaling("minscale", "1"),
            "spec.template.metadata.annotations.autoscaling.knative.dev/minscale",
            "unknown",
        ),
        (
            scaling("window", "1s"),
            "spec.template.metadata.annotations.autoscaling.knative.dev/window",
            "from 6s",
        ),
        (put("spec.template.spec.idleTimeoutSeconds", 301), "spec.template.spec.idleTimeoutSeconds", "from 0 to 300"),
        (put("spec.template.spec.timeoutSeconds", 601), "spec.template.spec.timeoutSeconds", "from 1 to 600"),
        (
            put("spec.template.spec.responseStartTimeoutSeconds", 900),
            "spec.template.spec.responseStart",
            "0 to 600",
        ),
        (
            put("spec.template.spec.containerConcurrency", "1"),
            "spec.template.spec.containerConc",
            "whole number",
        ),
        (put("spec.template.spec.initContainers", []), "spec.template.spec.initContainers", "has none"),
        (
            put("spec.template.spec.containers", [{}, {}]),
            "spec.template.spec.containers",
            "one container, not 2",
        ),
        (put("spec.template.spec.containers", []), "spec.template.spec.containers", "one container, not 0"),
        (put(f"{CONTAINER}.image", None), "spec.template.spec.containers[0].image", "missing"),
        (put(f"{CONTAINER}.command", []), "spec.template.spec.containers[0].command", "missing"),
        (
            put(f"{CONTAINER}.command", "python"),
            "spec.template.spec.containers[0].command",
            "list of strings",
        ),
        (put(f"{CONTAINER}.ports", [{}, {}]), "spec.template.spec.containers[0].ports", "one port"),
        (
            put(f"{CONTAINER}.ports", [{"name": "h2c"}]),
            "spec.template.spec.containers[0].ports[0].name",
            "http1",
        ),
        (
            put(f"{CONTAINER}.env", [{"name": "PORT", "value": "1"}]),
            "spec.template.spec.containers[0].env[0].name",
            "PORT",
        ),
        (
            put(f"{CONTAINER}.env", [{"name": "A", "value": 1}]),
            "spec.template.spec.containers[0].env[0].value",
            "string",
        ),
        (
            put(f"{CONTAINER}.env", [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]),
            "spec.template.spec.containers[0].env[0].valueFrom.fieldRef",
            "only secretKeyRef",
        ),
        (
            put(f"{CONTAINER}.env", [{"name": "RLHFLESS_STAGES", "value": "a"}]),
            "RLHFLESS_STAGES",
            "no stage 'a'",
        ),
        (put(f"{CONTAINER}.envFrom", []), "spec.template.spec.containers[0].envFrom", "not resolved"),
        (put(f"{CONTAINER}.resources.requests", {"cpu": "2 cores"}), "resources.requests.cpu", "quantity"),
        (put(f"{CONTAINER}.readinessProbe", {"exec": {"command": ["a"]}}), "readinessProbe.exec", "httpGet"),
    ],
)
def test_refused_with_file_field_and_reason(edit: Edit, field: str, reason: str) -> None:
    with pytest.raises(ManifestRefused) as refused:
        parsed(edit)
    assert refused.value.source == "rollout.yaml"
    assert field in refused.value.field
    assert reason in refused.value.reason
    assert str(refused.value).startswith("rollout.yaml: ")


@pytest.mark.parametrize(
    ("text", "reason"), [("a: [", "is not YAML"), ("", "0 documents"), ("[]", "must be a mapping")]
)
def test_what_is_no_service(text: str, reason: str) -> None:
    with pytest.raises(ManifestRefused, match=reason):
        parse_manifest(text, source="x.yaml")


def test_only_one_service_in_a_file() -> None:
    with pytest.raises(ManifestRefused, match="2 documents"):
        parse_manifest(yaml.safe_dump_all([service(), service()]), source="x.yaml")


def test_the_template_alone_makes_a_revision() -> None:
    relabelled = parsed(put("metadata.labels", {"a": "b"}))
    other_image = parsed(put(f"{CONTAINER}.image", "registry/function:2"))
    assert relabelled.template == parsed().template
    assert other_image.template != parsed().template
