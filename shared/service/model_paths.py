"""Which models a call may name: folders under the configured roots, and hub ids only where a hub is allowed."""

from pathlib import Path

from shared.contracts.errors import InvalidInput
from shared.contracts.policy import ModelRef
from shared.service.settings import FunctionSettings


def checked_model(model: ModelRef, settings: FunctionSettings) -> str:
    """The folder, links resolved, or the hub id to load from. Raises ``InvalidInput``."""
    path = Path(model.path)
    try:
        if path.is_absolute():
            return _checked_folder(path, settings)
        is_local = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        # A name that is too long or holds a NUL, links in a circle, a folder that may not be read.
        raise InvalidInput(f"model {model.path!r} is no path that can be followed: {error}") from error
    if is_local:
        raise InvalidInput(f"model {model.path!r} is a folder here: name it by its absolute path")
    if not settings.allow_hub:
        raise InvalidInput(f"model {model.path!r} is no absolute path, and hub ids are off (RLHFLESS_ALLOW_HUB=1)")
    return model.path


def _checked_folder(path: Path, settings: FunctionSettings) -> str:
    resolved = path.resolve()
    if not any(resolved.is_relative_to(root.resolve()) for root in settings.model_roots):
        raise InvalidInput(f"model {str(path)!r} lies outside the configured roots: move it, or set RLHFLESS_ROOTS")
    if not (resolved / "config.json").is_file():
        raise InvalidInput(f"model {str(path)!r} is not a model folder here: it has no config.json")
    return str(resolved)
