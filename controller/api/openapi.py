"""What the API's description says beyond the routes' types: the schema of a config, and of bodies that are no JSON."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from controller.api.models import ApiProblem
from controller.runs.config.run_config import RunConfig

SCHEMAS = "#/components/schemas/"

SUBMISSION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {
                            "type": "object",
                            "required": ["config"],
                            "additionalProperties": False,
                            "properties": {
                                "config": {"$ref": f"{SCHEMAS}RunConfig"},
                                "overrides": {
                                    "type": "array",
                                    "items": {"type": "string"},
                                    "description": "Assignments on top of the config, such as rollout.n=16.",
                                },
                            },
                        },
                        {"$ref": f"{SCHEMAS}RunConfig"},
                    ]
                }
            }
        },
    }
}

DATASET_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file itself, not a form: `curl --data-binary @train.jsonl`.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}

EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
PLAIN_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
PROMETHEUS_TEXT = PLAIN_TEXT
JSON_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
}
TAR_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}
}


class DescribedApi(FastAPI):
    """An application whose description holds the schema of a run's config and the shape of every error."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            config = RunConfig.model_json_schema(ref_template=f"{SCHEMAS}{{model}}")
            problem = ApiProblem.model_json_schema(ref_template=f"{SCHEMAS}{{model}}", mode="serialization")
            schemas = document["components"]["schemas"]
            for name, schema in (("RunConfig", config), ("ApiProblem", problem)):
                schemas |= schema.pop("$defs", {}) | {name: schema}
            for path in document["paths"].values():
                for operation in path.values():
                    _describe_errors(operation)
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}, {}]
            self.openapi_schema = document
        return self.openapi_schema


def _describe_errors(operation: dict[str, Any]) -> None:
    problem = {"application/problem+json": {"schema": {"$ref": f"{SCHEMAS}ApiProblem"}}}
    operation["responses"].pop("422", None)
    operation["responses"]["4XX"] = {"description": "The request cannot be served as it is.", "content": problem}
    operation["responses"]["503"] = {"description": "Not now: retry later.", "content": problem}
