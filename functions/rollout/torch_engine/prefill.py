"""Which prefixes are computed together, and for which rows: every distinct one once. And what is appended later."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_PASS_TOKENS = 8192
"""Padded tokens of one pass; bounds the memory that a pass needs beside the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPass:
    """One forward pass over distinct prefixes."""

    prefixes: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    """Rows of the batch to fill."""
    sources: tuple[int, ...]
    """For each of `rows`, the index of its prefix."""


def plan_prefill(prefixes: Sequence[tuple[int, ...]], first_row: int) -> Iterator[PrefillPass]:
    """Passes that fill rows `first_row`, `first_row + 1`, ... with their prefixes.

    Empty prefixes need none. Prefixes of similar length share a pass, so that little of it is padding.
    """
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, prefix in enumerate(prefixes, first_row):
        if prefix:
            rows.setdefault(prefix, []).append(row)
    for group in _packed(list(rows), len):
        targets = [(row, source) for source, prefix in enumerate(group) for row in rows[prefix]]
        yield PrefillPass(
            prefixes=tuple(group),
            rows=tuple(row for row, _ in targets),
            sources=tuple(source for _, source in targets),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """Tokens that the cache lacks of a running row; its slots before `start` are filled."""

    row: int
    start: int
    token_ids: tuple[int, ...]


def plan_extensions(extensions: Sequence[Extension]) -> Iterator[list[Extension]]:
    """Which rows are extended in one forward pass."""
    return _packed(extensions, lambda extension: len(extension.token_ids))


def _packed(entries: Sequence[T], length: Callable[[T], int]) -> Iterator[list[T]]:
    """Cuts entries, shortest first, into groups of at most `_PASS_TOKENS` padded tokens, or of one entry."""
    group: list[T] = []
    for entry in sorted(entries, key=length):
        if group and (len(group) + 1) * length(entry) > _PASS_TOKENS:
            yield group
            group = []
        group.append(entry)
    if group:
        yield group
