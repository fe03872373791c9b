"""any function → controller: what is running there."""

from shared.contracts.stage import Stage
from shared.contracts.wire import Wire

CONTRACT_VERSION = 1
"""Rises when a message changes so that an older function could misread it."""


class FunctionInfo(Wire):
    """Answer of ``GET /v1/info``."""

    stages: tuple[Stage, ...]
    contract_version: int = CONTRACT_VERSION
    instance: str
    revision: str
    model: str | None = None
    """The model that its image carries; left out where it serves whatever a run names."""
    tokenizer_hash: str | None = None
    """SHA-256 of that model's tokenizer.json."""
