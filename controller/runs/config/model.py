"""``model``: which policy is trained."""

from pydantic import Field

from controller.runs.config.section import Section


class ModelConfig(Section):
    """The architecture, tokenizer and starting weights."""

    path: str = Field(min_length=1, max_length=1024)
    """Folder with config.json, tokenizer files and safetensors weights, under the configured roots; or a hub id
    where the controller's settings allow a hub. No default: there is no model that fits every run."""
