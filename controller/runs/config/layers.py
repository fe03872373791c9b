"""One source of keys (the document, or the overrides) brought to canonical names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.runs.config.aliases import ALIASES, VERL_PREFIX, NoEquivalent, without_prefix
from controller.runs.config.keys import known_keys
from controller.runs.config.problems import ConfigProblem, shown
from controller.runs.config.refusals import refusal_of
from controller.runs.config.unknown import unknown_key

MAX_DEPTH = 8
"""Levels of sections that are looked into. No key is deeper; a hostile document may be."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value and the name under which the user gave it."""

    spelled: str
    value: Any
    preset: str | None = None
    """Where it is not the user who gave it."""


def flatten(tree: Mapping[Any, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """The leaves of nested sections by dotted name. Names with dots in them are taken as paths."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value and depth < MAX_DEPTH and _mapping_key(f"{prefix}{name}") is None:
            yield from flatten(value, f"{prefix}{name}.", depth + 1)
        else:
            yield f"{prefix}{name}", value


def over(below: Mapping[str, Given], above: Mapping[str, Given]) -> dict[str, Given]:
    """The values of two layers. The upper one wins, in mappings name by name."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        lower, upper = below[key].value, above[key].value
        if known_keys()[key].is_mapping and isinstance(lower, Mapping) and isinstance(upper, Mapping):
            merged[key] = Given(above[key].spelled, {**lower, **upper})
    return merged


def canonical(pairs: Iterator[tuple[str, Any]]) -> tuple[dict[str, Given], list[ConfigProblem]]:
    """Resolve aliases and refuse what has no meaning here.

    Returns the values by canonical key, and the problems: unknown keys, refused keys, values without an equal, and one
    key given under two names with different values.
    """
    values: dict[str, Given] = {}
    problems: list[ConfigProblem] = []
    for spelled, value in pairs:
        bare = without_prefix(spelled)
        try:
            meant = _meant(bare, value)
        except NoEquivalent as error:
            problems.append(ConfigProblem(field=spelled, reason=error.reason, suggestion=error.suggestion))
            continue
        if not meant:
            problems.extend(_not_a_key(spelled, bare, value))
        for key, converted in meant.items():
            given = Given(spelled, converted)
            earlier = values.setdefault(key, given)
            joined = _joined(key, earlier.value, converted)
            if joined is not None:
                values[key] = Given(spelled, joined)
                continue
            if earlier is not given and earlier.value != converted:
                problems.append(
                    ConfigProblem(
                        field=spelled,
                        reason=f"{earlier.spelled} is the same key with another value, {shown(earlier.value)}",
                        suggestion=f"give {key} once",
                    )
                )
    return values, problems


def _meant(bare: str, value: object) -> Mapping[str, object]:
    """The canonical keys that a name stands for, with their values; none for a name that is no key."""
    alias = ALIASES.get(bare)
    if alias is not None and not (value in (None, {}) and _is_section(bare)):
        return {alias.key: alias.convert(value), **alias.also(value)}
    if bare in known_keys():
        return {bare: value}
    mapping = _mapping_key(bare.rpartition(".")[0])
    return {} if mapping is None else {mapping: {bare.rpartition(".")[2]: value}}


def _mapping_key(name: str) -> str | None:
    """The key that a name stands for, if its value is a mapping of the user's own names."""
    bare = without_prefix(name)
    key = ALIASES[bare].key if bare in ALIASES else bare
    return key if key in known_keys() and known_keys()[key].is_mapping else None


def _joined(key: str, first: object, second: object) -> dict[Any, Any] | None:
    """Two parts of one mapping in one; ``None`` for what is no mapping, or where the parts contradict each other."""
    if not (known_keys()[key].is_mapping and isinstance(first, Mapping) and isinstance(second, Mapping)):
        return None
    if any(first[name] != second[name] for name in first.keys() & second.keys()):
        return None
    return {**first, **second}


def _is_section(name: str) -> bool:
    return any(key.startswith(f"{name}.") for key in known_keys())


def _not_a_key(spelled: str, bare: str, value: object) -> Iterator[ConfigProblem]:
    inside = _keys_of_section(bare)
    if inside:
        # A section that is there but empty keeps its defaults.
        if value not in (None, {}):
            suggestion = f"its keys are {', '.join(inside)}"
            yield ConfigProblem(field=spelled, reason="it is a section of keys, not a value", suggestion=suggestion)
        return
    refusal = refusal_of(bare)
    if refusal is None:
        yield unknown_key(spelled, bare)
    elif value not in refusal.unless:
        yield ConfigProblem(field=spelled, reason=refusal.reason, suggestion=refusal.suggestion)


def _keys_of_section(name: str) -> list[str]:
    """What stands in a section, be it a section here or only in another trainer's config."""
    if f"{name}." == VERL_PREFIX:
        return [f"{VERL_PREFIX}{key}" for key in known_keys() if key.startswith(("model.", "actor.", "rollout."))]
    return [key for key in (*known_keys(), *ALIASES) if key.startswith(f"{name}.")]
