"""Which column is the prompt, which the ground truth, and which says where a row is from.

The names of verl, TRL, OpenRLHF, verifiers and SkyRL are known. Where more than one column could be meant nothing is
guessed: a run that trains on the wrong column looks like one that does not learn.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.runs.data.errors import ColumnAmbiguous, ColumnMissing

PROMPTS = {"prompt": "verl, TRL", "question": "verifiers", "input": "OpenRLHF"}
GROUND_TRUTHS = {
    "reward_model.ground_truth": "verl",
    "reward_spec.ground_truth": "SkyRL",
    "ground_truth": "TRL",
    "answer": "verifiers",
    "label": "OpenRLHF",
    "solution": "TRL",
}
DATA_SOURCES = {"data_source": "verl", "task": "verifiers"}
"""Known names, with whose they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The chosen columns, by dotted name."""

    prompt: str
    ground_truth: str | None
    """``None``: the reward function reads the row's columns by name."""
    data_source: str | None
    note: str
    """What was chosen and why, in one line."""


def choose_columns(
    row: Mapping[str, Any],
    *,
    prompt_key: str | None,
    answer_key: str | None,
    source_key: str | None,
    needs_ground_truth: bool,
    field: str,
) -> Columns:
    """Choose by the first row of a dataset; explicit keys win over recognised ones. A null is no value.

    Raises ``ColumnMissing`` when there is no such column, naming those that are there, and ``ColumnAmbiguous`` when
    several could be meant, naming these.
    """
    explicit = {"data.prompt_key": prompt_key, "data.answer_key": answer_key, "data.reward_fn_key": source_key}
    for key, name in explicit.items():
        if name is not None and not has(row, name):
            raise ColumnMissing(
                field=key,
                reason=f"there is no column {name!r}; the columns are {_names(row)}",
                suggestion="name one of them, or leave the key out to have it recognised",
            )
    prompts = _known(row, PROMPTS)
    prompt = prompt_key or _prompt(row, prompts, field)
    truths = [name for name in _known(row, GROUND_TRUTHS) if name != prompt]
    ground_truth = answer_key or _ground_truth(truths, field)
    if ground_truth is None and needs_ground_truth:
        raise ColumnMissing(
            field=field,
            reason="the reward needs a ground truth, and no column is known to hold one; the columns are "
            f"{_names(row)}",
            suggestion="name it in data.answer_key",
        )
    sources = [name for name in _known(row, DATA_SOURCES) if isinstance(value_of(row, name), str)]
    source = source_key or next(iter(sources), None)
    said = [
        f"prompt from {_chosen(prompt, 'data.prompt_key' if prompt_key else PROMPTS[prompt])}",
        f"ground truth from {_chosen(ground_truth, 'data.answer_key' if answer_key else GROUND_TRUTHS[ground_truth])}"
        if ground_truth
        else "no ground truth",
    ]
    if source:
        said.append(f"data source from {_chosen(source, 'data.reward_fn_key' if source_key else DATA_SOURCES[source])}")
    passed_over = [name for name in (*prompts, *truths) if name not in (prompt, ground_truth)]
    if passed_over:
        said.append(f"passed over {', '.join(passed_over)}")
    return Columns(prompt=prompt, ground_truth=ground_truth, data_source=source, note=", ".join(said))


def has(row: Mapping[str, Any], name: str) -> bool:
    """Whether the row has the column."""
    try:
        value_of(row, name)
    except KeyError:
        return False
    return True


def value_of(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column; dots lead into nested columns unless a column has that very name. ``KeyError`` if none."""
    if name in row:
        return row[name]
    head, dot, rest = name.partition(".")
    inner = row[head]
    if not dot or not isinstance(inner, Mapping):
        raise KeyError(name)
    return value_of(inner, rest)


def _prompt(row: Mapping[str, Any], known: Sequence[str], field: str) -> str:
    if not known:
        raise ColumnMissing(
            field=field,
            reason=f"no column is known to hold the prompt; the columns are {_names(row)}",
            suggestion="name it in data.prompt_key",
        )
    # Chat messages are a prompt that was made of something; the text beside them is what it was made of.
    messages = [name for name in known if isinstance(value_of(row, name), list)]
    candidates = messages or known
    if len(candidates) > 1:
        raise _ambiguous(candidates, "the prompt", "data.prompt_key", field)
    return candidates[0]


def _ground_truth(known: Sequence[str], field: str) -> str | None:
    # A column of this name is meant to be compared with, whatever other answers the row has.
    named = [name for name in known if name.rpartition(".")[2] == "ground_truth"]
    candidates = named or known
    if len(candidates) > 1:
        raise _ambiguous(candidates, "the ground truth", "data.answer_key", field)
    return candidates[0] if candidates else None


def _ambiguous(names: Sequence[str], what: str, key: str, field: str) -> ColumnAmbiguous:
    return ColumnAmbiguous(
        field=field,
        reason=f"more than one column could be {what}: {', '.join(names)}",
        suggestion=f"name one of them in {key}",
    )


def _known(row: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [name for name in names if has(row, name) and value_of(row, name) is not None]


def _names(row: Mapping[str, Any]) -> str:
    return ", ".join(sorted(row)) or "none"


def _chosen(name: str, source: str) -> str:
    return f"{name!r} ({source})"
