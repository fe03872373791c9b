"""How long the completions of each row were in earlier epochs, kept with the run: what assignments are planned by.

A step's lengths are stored in the moment in which the head moves behind the step: a step that is repeated after a crash
finds the history as it was when the step first began, and records its lengths once. Evaluation stores none.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from controller.runs.context import RunContext
from controller.scheduling.lengths import LengthRecord
from shared.codec.completion_facts import CompletionFacts

History = Mapping[str, tuple[LengthRecord, ...]]
"""Records by row, the newest last."""


class HistoryDamaged(ValueError):
    """Stored text is no length history."""


def row_and_epoch(row_uid: str) -> tuple[str, int]:
    """The row of the data set and the epoch that a drawn row's uid stands for: ``train-000005.e1``."""
    row, dot, epoch = row_uid.rpartition(".e")
    return (row, int(epoch)) if dot and epoch.isdecimal() else (row_uid, 0)


async def read_history(run: RunContext, row_uids: Iterable[str]) -> History:
    """What earlier steps recorded of the rows; those without a record are left out."""
    rows = sorted({row_and_epoch(row_uid)[0] for row_uid in row_uids})
    stored = await run.store.records.lengths(run.run, rows)
    return {row: parse_records(row, text) for row, text in stored.items()}


def records_of(completions: Iterable[CompletionFacts]) -> tuple[LengthRecord, ...]:
    """One record per group, by row and epoch."""
    lengths: dict[tuple[str, int], list[int]] = {}
    for one in completions:
        lengths.setdefault(row_and_epoch(one.id.row_uid), []).append(one.num_tokens)
    return tuple(
        LengthRecord(row_uid=row, epoch=epoch, lengths=tuple(sorted(found)))
        for (row, epoch), found in sorted(lengths.items())
    )


def extended(history: History, records: Sequence[LengthRecord], *, window: int) -> dict[str, tuple[LengthRecord, ...]]:
    """The history of the rows that are among ``records``, with these, of the newest ``window`` epochs.

    A record takes the place of an earlier one of the same row and epoch.
    """
    by_row: dict[str, dict[int, LengthRecord]] = {}
    for record in (*(one for row in {record.row_uid for record in records} for one in history.get(row, ())), *records):
        by_row.setdefault(record.row_uid, {})[record.epoch] = record
    return {row: tuple(epochs[epoch] for epoch in sorted(epochs)[-window:]) for row, epochs in sorted(by_row.items())}


def format_records(records: Iterable[LengthRecord]) -> str:
    """One row's records as text: ``[[epoch, [length, ...]], ...]``."""
    return json.dumps([[record.epoch, list(record.lengths)] for record in records], separators=(",", ":"))


def parse_records(row: str, text: str) -> tuple[LengthRecord, ...]:
    """Inverse of ``format_records``. Raises ``HistoryDamaged``."""
    try:
        return tuple(
            LengthRecord(row_uid=row, epoch=_count(epoch), lengths=tuple(map(_count, lengths)))
            for epoch, lengths in json.loads(text)
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise HistoryDamaged(f"the length history of row {row[:80]!r} is damaged: {error}") from error


def format_file(stored: Mapping[str, str]) -> bytes:
    """The whole history as a checkpoint has it: a JSON line per row, from the texts in the store."""
    lines = (f'{{"row":{json.dumps(row)},"epochs":{text}}}\n' for row, text in sorted(stored.items()))
    return "".join(lines).encode()


def parse_file(data: bytes) -> dict[str, str]:
    """Inverse of ``format_file``. Raises ``HistoryDamaged``."""
    stored: dict[str, str] = {}
    try:
        for line in data.decode().splitlines():
            entry = json.loads(line)
            row = str(entry["row"])
            stored[row] = format_records(parse_records(row, json.dumps(entry["epochs"])))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise HistoryDamaged(f"not a length history: {error}") from error
    return stored


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no number of tokens")
    return value
