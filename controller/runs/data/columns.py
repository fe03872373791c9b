"""Which column is the prompt and which the ground truth: verl's, TRL's, OpenRLHF's and verifiers' names are known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.runs.data.errors import ColumnMissing

PROMPTS = {"prompt": "verl, TRL", "question": "verifiers", "input": "OpenRLHF"}
GROUND_TRUTHS = {
    "reward_model.ground_truth": "verl",
    "reward_spec.ground_truth": "SkyRL",
    "answer": "verifiers",
    "label": "OpenRLHF",
    "ground_truth": "TRL",
    "solution": "TRL",
}
"""In the order of preference, with whose name it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The chosen columns, by dotted name."""

    prompt: str
    ground_truth: str | None
    """``None``: the reward function reads the row's columns by name."""
    note: str
    """What was chosen and why, in one line."""


def choose_columns(
    row: Mapping[str, Any],
    *,
    prompt_key: str | None,
    answer_key: str | None,
    needs_ground_truth: bool,
    field: str,
) -> Columns:
    """Choose by the first row of a dataset; explicit keys win over recognised ones.

    Raises ``ColumnMissing`` when there is no such column, naming those that are there.
    """
    there = ", ".join(sorted(row)) or "none"
    known_prompts = [name for name in PROMPTS if has(row, name)]
    if prompt_key is None and not known_prompts:
        raise ColumnMissing(
            field=field,
            reason=f"no column is known to hold the prompt; the columns are {there}",
            suggestion="name it in data.prompt_key",
        )
    prompt = prompt_key or known_prompts[0]
    known_answers = [name for name in GROUND_TRUTHS if has(row, name) and name != prompt]
    ground_truth = answer_key or (known_answers[0] if known_answers else None)
    for key, name in (("data.prompt_key", prompt_key), ("data.answer_key", answer_key)):
        if name is not None and not has(row, name):
            raise ColumnMissing(
                field=key,
                reason=f"there is no column {name!r}; the columns are {there}",
                suggestion="name one of them, or leave the key out to have it recognised",
            )
    if ground_truth is None and needs_ground_truth:
        raise ColumnMissing(
            field=field,
            reason=f"the reward needs a ground truth, and no column is known to hold one; the columns are {there}",
            suggestion="name it in data.answer_key",
        )
    said = [
        f"prompt from {_chosen(prompt, 'data.prompt_key' if prompt_key else PROMPTS[prompt])}",
        f"ground truth from {_chosen(ground_truth, 'data.answer_key' if answer_key else GROUND_TRUTHS[ground_truth])}"
        if ground_truth
        else "no ground truth",
    ]
    passed_over = [name for name in (*known_prompts, *known_answers) if name not in (prompt, ground_truth)]
    if passed_over:
        said.append(f"passed over {', '.join(passed_over)}")
    return Columns(prompt=prompt, ground_truth=ground_truth, note=", ".join(said))


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


def _chosen(name: str, source: str) -> str:
    return f"{name!r} ({source})"
