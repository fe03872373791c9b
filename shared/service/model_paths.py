"""Which models a call may name: folders under the configured roots, and hub ids only where a hub is allowed."""

from pathlib import Path

from shared.contracts.errors import InvalidInput
from shared.contracts.policy import ModelRef
from shared.service.settings import FunctionSettings


def checked_model(model: ModelRef, settings: FunctionSettings) -> str:
    """The folder or hub id to load from. Raises ``InvalidInput``."""
    path = Path(model.path)
    if path.is_absolute():
        resolved = path.resolve()
        if not any(resolved.is_relative_to(root.resolve()) for root in settings.model_roots):
            raise InvalidInput(f"model {model.path} lies outside the configured roots: move it, or set RLHFLESS_ROOTS")
        if not (resolved / "config.json").is_file():
            raise InvalidInput(f"model {model.path} is not a model folder here: it has no config.json")
        return str(resolved)
    if not settings.allow_hub:
        raise InvalidInput(f"model {model.path} is no absolute path, and hub ids are off (RLHFLESS_ALLOW_HUB=1)")
    return model.path
