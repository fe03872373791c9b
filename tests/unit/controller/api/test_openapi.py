from typing import Any

import pytest

from controller.api.app import make_api
from controller.runs.config.run_config import RunConfig
from tests.unit.controller.api.fake_service import FakeService
from tests.unit.controller.api.serving import swaps_of


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return make_api(FakeService(), token=None, swaps=swaps_of(FakeService())).openapi()


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        inner = [references(value) for value in part.values()]
        return set().union(*inner, {part["$ref"]} if isinstance(part.get("$ref"), str) else set())
    if isinstance(part, list):
        return set().union(*map(references, part))
    return set()


def test_every_route_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    assert described == {
        ("POST", "/v1/runs"),
        ("GET", "/v1/runs"),
        ("GET", "/v1/runs/{run}"),
        ("DELETE", "/v1/runs/{run}"),
        ("GET", "/v1/runs/{run}/events"),
        ("GET", "/v1/runs/{run}/logs"),
        ("GET", "/v1/runs/{run}/metrics"),
        ("GET", "/v1/runs/{run}/summary"),
        ("POST", "/v1/runs/{run}/cancel"),
        ("POST", "/v1/runs/{run}/resume"),
        ("GET", "/v1/runs/{run}/checkpoints"),
        ("GET", "/v1/runs/{run}/checkpoints/{step}/download"),
        ("GET", "/v1/runs/{run}/plan"),
        ("GET", "/v1/runs/{run}/steps/{step}/plan"),
        ("GET", "/v1/runs/{run}/trace"),
        ("POST", "/v1/plans"),
        ("POST", "/v1/datasets"),
        ("GET", "/v1/datasets"),
        ("GET", "/v1/datasets/{dataset}"),
        ("DELETE", "/v1/datasets/{dataset}"),
        ("GET", "/v1/functions"),
        ("GET", "/v1/functions/{name}"),
        ("PUT", "/v1/functions/{name}"),
        ("GET", "/v1/replicas"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    }
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["description"]
            assert "4XX" in operation["responses"]


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    missing = {ref for ref in references(document) if ref.rpartition("/")[2] not in schemas}
    assert not missing


def test_the_config_is_described_key_by_key(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    body = document["paths"]["/v1/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "#/components/schemas/RunConfig" in references(body)
    assert set(schemas["RunConfig"]["properties"]) == set(RunConfig.model_fields)
    assert "GRPO" in schemas["RolloutConfig"]["properties"]["n"]["description"]
