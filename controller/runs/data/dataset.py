"""Rows to tokenised prompts, checked before anything starts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from controller.runs.config.data import DataConfig
from controller.runs.data.columns import Columns, choose_columns, has, value_of
from controller.runs.data.errors import DatasetEmpty, InputRefused, RowInvalid
from controller.runs.data.reader import read_rows
from controller.runs.data.rendering import PromptTokenizer, render_prompt
from controller.runs.data.row import Row
from controller.runs.data.sampler import Draw
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import Prompt

Split = Literal["train", "val"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The prompts of one split, in file order."""

    split: Split
    prompts: tuple[Prompt, ...]
    num_filtered: int
    """Rows left out as too long (``data.filter_overlong_prompts``)."""
    note: str
    """One line for the log: how many rows, from which files and columns."""

    def take(self, draws: Sequence[Draw]) -> tuple[Prompt, ...]:
        """The drawn prompts. The epoch is part of their uid, so a row that is in a batch twice is two groups."""
        return tuple(_drawn(self.prompts[draw.row], draw.epoch) for draw in draws)

    def batches(self, size: int | None) -> list[tuple[Prompt, ...]]:
        """All prompts once, in order, ``size`` at a time; ``None`` is all at once."""
        step = size or len(self.prompts)
        return [self.prompts[start : start + step] for start in range(0, len(self.prompts), step)]


def load_dataset(
    files: Sequence[Path],
    split: Split,
    data: DataConfig,
    tokenizer: PromptTokenizer,
    *,
    context_tokens: int | None,
    needs_ground_truth: bool,
) -> Dataset:
    """Read and tokenise one split. Text is taken as it is; chat messages go through the model's template.

    A row's uid is its split and its number in the files, so equal rows are different groups. ``context_tokens`` is the
    most that the model attends to (``None``: unknown). Raises ``InputRefused`` with the key, the row, the reason and
    what to do: for a row without its column, an empty prompt, a prompt that is too long (unless those are filtered),
    files without a usable row. Takes time on large files: call it off the event loop.
    """
    field = "data.train_files" if split == "train" else "data.val_files"
    limit = _prompt_limit(data, context_tokens)
    rows = read_rows(files, field=field)
    columns = choose_columns(
        rows[0].columns,
        prompt_key=data.prompt_key,
        answer_key=data.answer_key,
        source_key=data.reward_fn_key,
        needs_ground_truth=needs_ground_truth,
        field=field,
    )
    prompts = [_prompt(row, f"{split}-{index:06d}", columns, data, tokenizer, field) for index, row in enumerate(rows)]
    too_long = [index for index, prompt in enumerate(prompts) if len(prompt.token_ids) > limit.num_tokens]
    if too_long and not data.filter_overlong_prompts:
        first = too_long[0]
        others = f" ({len(too_long) - 1} more are too long)" if len(too_long) > 1 else ""
        raise RowInvalid(
            field=field,
            reason=f"{rows[first].place}: the prompt has {len(prompts[first].token_ids)} tokens, {limit.why}{others}",
            suggestion=f"{limit.remedy}, shorten the row, or set data.filter_overlong_prompts to leave such rows out",
        )
    kept = tuple(prompt for prompt in prompts if len(prompt.token_ids) <= limit.num_tokens)
    if not kept:
        raise DatasetEmpty(
            field=field,
            reason=f"all {len(prompts)} prompts are too long: {limit.why}",
            suggestion=limit.remedy,
        )
    names = ", ".join(file.name for file in files)
    left_out = f"; {len(too_long)} left out as too long" if too_long else ""
    note = f"{split}: {len(rows)} rows of {names}: {columns.note}{left_out}"
    return Dataset(split=split, prompts=kept, num_filtered=len(too_long), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """The longest prompt that can be used."""

    num_tokens: int
    why: str
    remedy: str


def _prompt_limit(data: DataConfig, context_tokens: int | None) -> _Limit:
    room = data.max_prompt_length if context_tokens is None else context_tokens - data.max_response_length
    if room < 1:
        raise InputRefused(
            field="data.max_response_length",
            reason=f"{data.max_response_length} tokens leave no room for a prompt in a context of {context_tokens}",
            suggestion=f"use less than {context_tokens}",
        )
    if room < data.max_prompt_length:
        return _Limit(
            num_tokens=room,
            why=f"more than {room}: the model's context of {context_tokens}"
            f" less data.max_response_length, {data.max_response_length}",
            remedy="lower data.max_response_length",
        )
    return _Limit(
        num_tokens=data.max_prompt_length,
        why=f"more than data.max_prompt_length, {data.max_prompt_length}",
        remedy="raise data.max_prompt_length",
    )


def _prompt(row: Row, uid: str, columns: Columns, data: DataConfig, tokenizer: PromptTokenizer, field: str) -> Prompt:
    content = _value(row, columns.prompt, field)
    try:
        rendered = render_prompt(content, data, tokenizer)
    except (InvalidInput, TypeError, ValueError) as error:
        raise _row_invalid(row, field, f"column {columns.prompt!r}: {error}", "correct the row") from error
    if not rendered.token_ids:
        raise _row_invalid(row, field, f"column {columns.prompt!r} is empty: the prompt has no token", "drop the row")
    head = columns.prompt.partition(".")[0]
    return Prompt(
        row_uid=uid,
        token_ids=rendered.token_ids,
        text=rendered.text,
        messages=rendered.messages,
        data_source=_data_source(row, columns, data, field),
        ground_truth=None if columns.ground_truth is None else _text(_value(row, columns.ground_truth, field)),
        columns={name: value for name, value in row.columns.items() if name != head},
    )


def _data_source(row: Row, columns: Columns, data: DataConfig, field: str) -> str:
    """A column that was asked for is in every row; one that was recognised may be missing from some."""
    if columns.data_source is None:
        return ""
    if data.reward_fn_key is not None:
        return _text(_value(row, columns.data_source, field))
    source = value_of(row.columns, columns.data_source) if has(row.columns, columns.data_source) else None
    return source if isinstance(source, str) else ""


def _text(value: Any) -> str:
    """Text as it stands, anything else as JSON: reward functions compare text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(row: Row, column: str, field: str) -> Any:
    try:
        value = value_of(row.columns, column)
    except KeyError:
        value = None
    if value is None:
        raise _row_invalid(
            row,
            field,
            f"column {column!r} is missing or null",
            "fill it in, drop the row, or name another column in data.prompt_key, data.answer_key or "
            "data.reward_fn_key",
        )
    return value


def _row_invalid(row: Row, field: str, reason: str, suggestion: str) -> RowInvalid:
    return RowInvalid(field=field, reason=f"{row.place}: {reason}", suggestion=suggestion)


def _drawn(prompt: Prompt, epoch: int) -> Prompt:
    return prompt.model_copy(update={"row_uid": f"{prompt.row_uid}.e{epoch}"})
