"""Relative paths of a config file: they are meant from where the file lies, and the controller runs elsewhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.runs.config.aliases import ALIASES, without_prefix

PATH_KEYS = frozenset(
    {
        "model.path",
        "data.train_files",
        "data.val_files",
        "reward.custom_reward_function.path",
        "trainer.resume_from_path",
    }
)
"""What a run reads. The folder of its own checkpoints is the controller's to find."""


def resolve_document(document: Mapping[Any, Any], folder: Path) -> tuple[dict[Any, Any], list[str]]:
    """The document with relative paths that exist below ``folder`` made absolute, and a note for each."""
    notes: list[str] = []
    return _resolve_section(document, "", folder, notes), notes


def resolve_overrides(overrides: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """The same for ``a.b=c`` assignments of one plain path each."""
    notes: list[str] = []
    resolved = []
    for override in overrides:
        name, equals, value = override.partition("=")
        if equals and _is_path_key(name.strip()):
            value = _resolve_value(value.strip(), name.strip(), folder, notes)
        resolved.append(f"{name}{equals}{value}")
    return resolved, notes


def _resolve_section(section: Mapping[Any, Any], prefix: str, folder: Path, notes: list[str]) -> dict[Any, Any]:
    resolved: dict[Any, Any] = {}
    for name, value in section.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            resolved[name] = _resolve_section(value, f"{key}.", folder, notes)
        else:
            resolved[name] = _resolve_value(value, key, folder, notes) if _is_path_key(key) else value
    return resolved


def _is_path_key(name: str) -> bool:
    bare = without_prefix(name)
    return (ALIASES[bare].key if bare in ALIASES else bare) in PATH_KEYS


def _resolve_value(value: Any, key: str, folder: Path, notes: list[str]) -> Any:
    if isinstance(value, list):
        return [_resolve_value(item, key, folder, notes) for item in value]
    if not isinstance(value, str) or not value or "\0" in value or Path(value).is_absolute():
        return value
    place = folder / value
    if not place.exists():
        # Not here: a hub id, or a path that the controller knows.
        return value
    notes.append(f"{key}: {value} is {place.resolve()}")
    return str(place.resolve())
