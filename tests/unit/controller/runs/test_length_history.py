"""The length history: what a step adds to it, and its form in the store and in checkpoints."""

from pathlib import Path

import pytest

from controller.runs.length_history import (
    HistoryDamaged,
    extended,
    format_file,
    format_records,
    parse_file,
    parse_records,
    read_history,
    records_of,
    row_and_epoch,
)
from controller.scheduling.lengths import LengthRecord
from shared.codec.completion_facts import CompletionFacts
from shared.contracts.completion import SampleId
from shared.store.records import StepRecords
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, make_world


def record(row: str, epoch: int, *lengths: int) -> LengthRecord:
    return LengthRecord(row_uid=row, epoch=epoch, lengths=lengths)


def completion(row_uid: str, sample: int, num_tokens: int) -> CompletionFacts:
    return CompletionFacts(
        id=SampleId(row_uid, sample),
        prompt_num_tokens=2,
        num_tokens=num_tokens,
        finish_reason="stop",
        instance="a",
        started_at=0.0,
        ended_at=1.0,
        stays=(),
    )


@pytest.mark.parametrize(
    ("row_uid", "expected"),
    [
        ("train-000005.e1", ("train-000005", 1)),
        ("train-000005.e12", ("train-000005", 12)),
        ("val-000005", ("val-000005", 0)),
        ("odd.e2.e3", ("odd.e2", 3)),
        ("odd.e", ("odd.e", 0)),
        ("odd.e-1", ("odd.e-1", 0)),
    ],
)
def test_a_uid_says_row_and_epoch(row_uid: str, expected: tuple[str, int]) -> None:
    assert row_and_epoch(row_uid) == expected


def test_a_group_becomes_one_record_with_all_lengths_sorted() -> None:
    found = records_of(
        [completion("b.e1", 0, 9), completion("a.e0", 1, 5), completion("b.e1", 1, 3), completion("b.e0", 0, 1)]
    )
    assert found == (record("a", 0, 5), record("b", 0, 1), record("b", 1, 3, 9))


def test_a_step_adds_to_its_own_rows_only() -> None:
    history = {"a": (record("a", 0, 5),), "b": (record("b", 0, 6),)}
    assert extended(history, [record("a", 1, 7)], window=2) == {"a": (record("a", 0, 5), record("a", 1, 7))}


def test_the_newest_epochs_are_kept_in_order() -> None:
    history = {"a": (record("a", 0, 5), record("a", 1, 6))}
    assert extended(history, [record("a", 2, 7)], window=2)["a"] == (record("a", 1, 6), record("a", 2, 7))
    assert extended(history, [record("a", 2, 7)], window=1)["a"] == (record("a", 2, 7),)


def test_the_same_epoch_again_replaces_and_an_older_one_does_not_push_out_a_newer() -> None:
    history = {"a": (record("a", 1, 6),)}
    assert extended(history, [record("a", 1, 8)], window=2)["a"] == (record("a", 1, 8),)
    assert extended(history, [record("a", 0, 8)], window=1)["a"] == (record("a", 1, 6),)


def test_a_row_may_be_in_a_step_twice() -> None:
    found = extended({}, [record("a", 0, 1), record("a", 1, 2)], window=4)
    assert found == {"a": (record("a", 0, 1), record("a", 1, 2))}


def test_records_come_back_from_text_and_file() -> None:
    records = (record("a", 0, 1, 2), record("a", 3))
    text = format_records(records)
    assert parse_records("a", text) == records
    stored = {'b"\n': format_records([record("b", 1, 4)]), "a": text}
    assert parse_file(format_file(stored)) == stored
    assert parse_file(b"") == {}


@pytest.mark.parametrize(
    "text", ["", "{", "1", "[1]", '[["x", [1]]]', "[[0, [1.5]]]", "[[-1, [1]]]", "[[0, 1]]", "[[true, []]]"]
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(HistoryDamaged):
        parse_records("a", text)
    with pytest.raises(HistoryDamaged):
        parse_file(f'{{"row": "a", "epochs": {text}}}'.encode())


@pytest.mark.parametrize("data", [b"\xff", b"[]", b'{"row": "a"}', b'{"epochs": []}', b"null"])
def test_a_damaged_file_is_refused(data: bytes) -> None:
    with pytest.raises(HistoryDamaged):
        parse_file(data)


@in_virtual_time
async def test_what_a_step_recorded_is_read_by_row_in_any_epoch(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    lengths = {"train-000001": format_records([record("train-000001", 0, 3, 4)])}
    await run.store.runs.advance(
        RUN,
        fence=run.fence,
        expected=None,
        manifest=b"m",
        history={},
        records=StepRecords(step=0, lengths=lengths),
    )
    found = await read_history(run, ["train-000001.e1", "train-000002.e1", "train-000001.e2"])
    assert found == {"train-000001": (record("train-000001", 0, 3, 4),)}
