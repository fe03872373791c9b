"""Parquet files to JSON values, by pyarrow where it is installed and by a fake of its reader."""

import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Self

import pytest

from controller.runs.data.errors import FileUnreadable, InputRefused, RowInvalid
from controller.runs.data.parquet import read_parquet
from controller.runs.data.reader import read_rows


class FakeBatch:
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.rows


class FakeParquetFile:
    """Serves two batches; what each file holds is set by the test."""

    rows: ClassVar[list[dict[str, Any]] | Exception] = []

    def __init__(self, file: Path) -> None:
        if isinstance(self.rows, Exception):
            raise self.rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        return None

    def iter_batches(self) -> Iterator[FakeBatch]:
        assert isinstance(self.rows, list)
        yield FakeBatch(self.rows[:1])
        yield FakeBatch(self.rows[1:])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeParquetFile]:
    module = ModuleType("pyarrow.parquet")
    module.ParquetFile = FakeParquetFile  # type: ignore[attr-defined]  # a module has what is put into it
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", module)
    return FakeParquetFile


def refused(error: type[InputRefused]) -> str:
    with pytest.raises(error) as caught:
        list(read_parquet(Path("t.parquet"), field="data.train_files"))
    (problem,) = caught.value.problems
    assert problem.field == "data.train_files"
    assert problem.suggestion
    return problem.reason


def test_values_become_json_values(fake: type[FakeParquetFile], monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"s": "x", "i": 1, "f": 0.5, "b": True, "n": None, "l": [{"role": "user"}], "m": [("k", 1)]}
    second = {"t": datetime(2026, 1, 2, 3), "d": date(2026, 1, 2), "c": Decimal("1.5")}
    monkeypatch.setattr(fake, "rows", [first, second])
    assert [row.columns for row in read_parquet(Path("t.parquet"), field="f")] == [
        first | {"m": [["k", 1]]},
        {"t": "2026-01-02T03:00:00", "d": "2026-01-02", "c": 1.5},
    ]


def test_a_value_that_json_cannot_hold_names_row_and_column(
    fake: type[FakeParquetFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "rows", [{"a": 1}, {"images": [{"bytes": b"x"}]}])
    assert refused(RowInvalid).startswith("t.parquet row 2: column 'images' holds bytes")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("NaN"), [{"deep": float("-inf")}]])
def test_a_number_that_json_has_not_is_refused_by_its_row(
    fake: type[FakeParquetFile], monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setattr(fake, "rows", [{"a": 1.0}, {"a": value}])
    with pytest.raises(RowInvalid, match="row 2: column 'a' holds NaN or an infinite number"):
        read_rows([Path("t.parquet")], field="f")


@pytest.mark.parametrize("error", [ValueError("magic bytes"), OSError("short"), NotImplementedError("type")])
def test_a_broken_file_is_refused(
    fake: type[FakeParquetFile], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(fake, "rows", error)
    assert "not readable parquet" in refused(FileUnreadable)


def test_without_pyarrow_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(FileUnreadable, match=r"needs pyarrow.*rlhfless\[parquet\]"):
        list(read_parquet(Path("t.parquet"), field="f"))


def test_a_real_file_is_read(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"prompt": [{"role": "user", "content": "1 + 1"}], "reward_model": {"ground_truth": "2"}, "index": 0},
        {"prompt": [{"role": "user", "content": "1 + 2"}], "reward_model": {"ground_truth": "3"}, "index": 1},
    ]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    read = read_rows([tmp_path / "t.parquet"], field="f")
    assert [row.columns for row in read] == rows
    assert [row.place for row in read] == ["t.parquet row 1", "t.parquet row 2"]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(FileUnreadable):
        read_rows([tmp_path / "broken.parquet"], field="f")
