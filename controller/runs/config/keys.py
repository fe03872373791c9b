"""The canonical keys of a config, read off ``RunConfig`` itself: ``rollout.n`` → type, bounds, default, meaning."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter

from controller.runs.config.run_config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One leaf of the config."""

    name: str
    adapter: TypeAdapter[Any]
    required: bool
    default: Any
    """``None`` where required."""
    meaning: str
    accepts_bool: bool
    accepts_text: bool
    is_mapping: bool
    """Whether its value is a mapping of the user's own names, which are no keys."""


@cache
def known_keys() -> Mapping[str, Key]:
    """Every key by its dotted name, in the order of the sections."""
    return {key.name: key for key in _leaves(RunConfig, "")}


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``{"rollout.n": 8}`` → ``{"rollout": {"n": 8}}``."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree


def _leaves(section: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in section.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _leaves(annotation, f"{prefix}{name}.")
            continue
        kinds = _plain_types(annotation)
        yield Key(
            name=prefix + name,
            adapter=TypeAdapter(field.rebuild_annotation(), config=ConfigDict(allow_inf_nan=False)),
            required=field.is_required(),
            default=None if field.is_required() else field.get_default(call_default_factory=True),
            meaning=" ".join((field.description or "").split()),
            accepts_bool=bool in kinds,
            accepts_text=str in kinds,
            is_mapping=any(get_origin(kind) is dict for kind in kinds),
        )


def _plain_types(annotation: Any) -> set[Any]:
    """The types under ``X | None`` and ``Annotated[X, ...]``."""
    if hasattr(annotation, "__metadata__"):
        return _plain_types(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        return set().union(*(_plain_types(part) for part in get_args(annotation)))
    return {annotation}
