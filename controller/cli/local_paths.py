"""Paths of this machine in a run's config: where they stand, and what they are rewritten to.

A relative path of a config file is meant from where the file lies, one of an override from the current folder. The
controller knows neither, so what exists here is made absolute, or sent (``upload``).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controller.runs.config.aliases import ALIASES, without_prefix

DATA_KEYS = frozenset({"data.train_files", "data.val_files"})
PARTS = "reward.parts"
PATH_KEYS = DATA_KEYS | {
    "model.path",
    "reference.model.path",
    "critic.model.path",
    "reward.custom_reward_function.path",
    "trainer.resume_from_path",
}
"""What a run reads, besides the paths in ``reward.parts``. The folder of its own checkpoints is the controller's to
find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPath:
    """A path of a config that leads somewhere on this machine."""

    field: str
    """The key as it is spelled."""
    key: str
    """The canonical key; paths in the reward's parts have ``reward.parts.function`` and ``reward.parts.model``."""
    given: str
    place: Path
    """Absolute, symlinks followed."""

    @property
    def is_code(self) -> bool:
        """Whether it is reward code."""
        return self.key in ("reward.custom_reward_function.path", f"{PARTS}.function")


Rewrite = Callable[[LocalPath], str]


def resolve_document(document: Mapping[Any, Any], folder: Path) -> tuple[dict[Any, Any], list[str]]:
    """The document with relative paths that exist below ``folder`` made absolute, and a note for each."""
    notes: list[str] = []
    return rewrite_document(document, folder, _absolute(notes)), notes


def resolve_overrides(overrides: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """The same for ``a.b=c`` assignments."""
    notes: list[str] = []
    return rewrite_overrides(overrides, folder, _absolute(notes)), notes


def rewrite_document(document: Mapping[Any, Any], folder: Path, rewrite: Rewrite) -> dict[Any, Any]:
    """The document with what ``rewrite`` makes of each path that exists on this machine."""
    return _section(document, "", folder, rewrite)


def rewrite_overrides(overrides: Sequence[str], folder: Path, rewrite: Rewrite) -> list[str]:
    """The same for ``a.b=c`` assignments. Values that hold no such path are left as they are spelled."""
    rewritten = []
    for override in overrides:
        name, equals, text = override.partition("=")
        rewritten.append(f"{name}{equals}{_override_value(name.strip(), text, folder, rewrite) if equals else text}")
    return rewritten


def _absolute(notes: list[str]) -> Rewrite:
    def rewrite(path: LocalPath) -> str:
        if Path(path.given).is_absolute():
            return path.given
        notes.append(f"{path.field}: {path.given} is {path.place}")
        return str(path.place)

    return rewrite


def _section(section: Mapping[Any, Any], prefix: str, folder: Path, rewrite: Rewrite) -> dict[Any, Any]:
    rewritten: dict[Any, Any] = {}
    for name, value in section.items():
        field = f"{prefix}{name}"
        if isinstance(value, Mapping):
            rewritten[name] = _section(value, f"{field}.", folder, rewrite)
        else:
            rewritten[name] = _value(value, field, folder, rewrite)
    return rewritten


def _override_value(field: str, text: str, folder: Path, rewrite: Rewrite) -> str:
    if _canonical(field) not in PATH_KEYS | {PARTS}:
        return text
    if not text.lstrip().startswith("["):
        return str(_value(text.strip(), field, folder, rewrite))
    try:
        value = yaml.safe_load(text)
        rewritten = _value(value, field, folder, rewrite)
        return text if rewritten == value else json.dumps(rewritten)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        # The config's to report.
        return text


def _value(value: Any, field: str, folder: Path, rewrite: Rewrite) -> Any:
    key = _canonical(field)
    if key == PARTS and isinstance(value, list):
        return [_part(part, f"{field}[{number}]", folder, rewrite) for number, part in enumerate(value)]
    if key not in PATH_KEYS:
        return value
    if isinstance(value, list):
        return [_path(item, field, key, folder, rewrite) for item in value]
    return _path(value, field, key, folder, rewrite)


def _part(part: Any, field: str, folder: Path, rewrite: Rewrite) -> Any:
    """A part of the reward: its function may be ``file.py:function``, its model a folder."""
    if not isinstance(part, Mapping):
        return part
    rewritten = dict(part)
    function, model = part.get("function"), part.get("model")
    if isinstance(function, str) and ".py:" in function:
        path, _, name = function.rpartition(":")
        rewritten["function"] = f"{_path(path, f'{field}.function', f'{PARTS}.function', folder, rewrite)}:{name}"
    if isinstance(model, Mapping) and "path" in model:
        path = _path(model["path"], f"{field}.model.path", f"{PARTS}.model", folder, rewrite)
        rewritten["model"] = {**model, "path": path}
    return rewritten


def _path(value: Any, field: str, key: str, folder: Path, rewrite: Rewrite) -> Any:
    if not isinstance(value, str) or not value or "\0" in value:
        return value
    place = folder / value
    try:
        if not place.exists():
            # Not here: a hub id, an uploaded dataset, or a path that the controller knows.
            return value
    except OSError:
        return value
    return rewrite(LocalPath(field=field, key=key, given=value, place=place.resolve()))


def _canonical(field: str) -> str:
    bare = without_prefix(field)
    return ALIASES[bare].key if bare in ALIASES else bare
