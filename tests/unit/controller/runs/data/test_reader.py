"""JSONL files to rows, and every way in which a file can be wrong."""

from pathlib import Path

import pytest

from controller.runs.data.errors import DatasetEmpty, FileUnreadable, InputRefused, RowInvalid
from controller.runs.data.reader import read_rows


def write(folder: Path, content: str | bytes, name: str = "t.jsonl") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def refused(file: Path, error: type[InputRefused]) -> str:
    with pytest.raises(error) as caught:
        read_rows([file], field="data.val_files")
    (problem,) = caught.value.problems
    assert problem.field == "data.val_files"
    assert problem.suggestion
    return problem.reason


def test_rows_come_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    first = write(tmp_path, '{"a": 1}\n\n  \n{"a": 2}\r\n', "first.jsonl")
    second = write(tmp_path, '\ufeff{"a": 3}', "second.ndjson")
    rows = read_rows([first, second], field="f")
    assert [row.columns for row in rows] == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [row.place for row in rows] == ["first.jsonl line 1", "first.jsonl line 4", "second.ndjson line 1"]


def test_line_separators_of_unicode_end_no_row(tmp_path: Path) -> None:
    (row,) = read_rows([write(tmp_path, '{"a": "x\u2028y\x85z"}')], field="f")
    assert row.columns == {"a": "x\u2028y\x85z"}


@pytest.mark.parametrize(
    "line",
    [b'{"a": ', b"nonsense", b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a": "\\uD800x"}', b"[" * 100_000],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes) -> None:
    reason = refused(write(tmp_path, b'{"a": 1}\n' + line + b"\n"), RowInvalid)
    assert reason.startswith("t.jsonl line 2 is not JSON")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", '[0, {"b": [NaN]}]'])
@pytest.mark.parametrize(("name", "place"), [("t.jsonl", "t.jsonl line 2"), ("t.json", "t.json row 2")])
def test_a_number_that_json_has_not_is_refused_by_its_row(tmp_path: Path, number: str, name: str, place: str) -> None:
    rows = ['{"a": 1.5}', f'{{"a": 1, "x": {number}}}']
    content = "\n".join(rows) if name == "t.jsonl" else f"[{','.join(rows)}]"
    assert refused(write(tmp_path, content, name), RowInvalid) == (
        f"{place}: column 'x' holds NaN or an infinite number, which JSON has not"
    )


def test_a_row_may_nest_deeply(tmp_path: Path) -> None:
    (row,) = read_rows([write(tmp_path, '{"a": ' + "[" * 800 + "1.5" + "]" * 800 + "}")], field="f")
    assert isinstance(row.columns["a"], list)


def test_a_pair_of_surrogates_is_text(tmp_path: Path) -> None:
    (row,) = read_rows([write(tmp_path, r'{"a": "\ud83d\ude00"}')], field="f")
    assert row.columns == {"a": "\U0001f600"}


@pytest.mark.parametrize("line", ["[1]", '"text"', "3", "null"])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    assert refused(write(tmp_path, line), RowInvalid) == "t.jsonl line 1 is not a JSON object"


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_files_without_rows_are_refused(tmp_path: Path, content: str) -> None:
    assert "no row in t.jsonl" in refused(write(tmp_path, content), DatasetEmpty)


def test_one_empty_file_among_others_is_no_fault(tmp_path: Path) -> None:
    files = [write(tmp_path, "", "empty.jsonl"), write(tmp_path, "{}", "full.jsonl")]
    assert len(read_rows(files, field="f")) == 1


@pytest.mark.parametrize("name", ["t.txt", "t", "t.jsonl.gz"])
def test_an_unknown_format_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    assert "of no known format by its name" in refused(write(tmp_path, "{}", name), FileUnreadable)


@pytest.mark.parametrize("content", ['[{"a": 1}, {"a": 2}]', '\ufeff \n[\n{"a": 1},\n{"a": 2}]', '{"a": 1}\n{"a": 2}'])
def test_a_json_file_is_an_array_or_has_a_row_per_line(tmp_path: Path, content: str) -> None:
    rows = read_rows([write(tmp_path, content, "t.json")], field="f")
    assert [row.columns for row in rows] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "words"),
    [("[1]", "t.json row 1 is not a JSON object"), ('[{"a": 1}', "t.json is not JSON"), ("{", "t.json line 1 is not")],
)
def test_a_bad_json_file_names_its_place(tmp_path: Path, content: str, words: str) -> None:
    assert words in refused(write(tmp_path, content, "t.json"), RowInvalid)


def test_csv_has_its_names_in_the_first_line_and_text_below(tmp_path: Path) -> None:
    file = write(tmp_path, '\ufeffquestion,answer\r\n"1, 2\nand 3?",6\r\n\r\n"say ""x""",7\r\n', "t.CSV")
    rows = read_rows([file], field="f")
    assert [row.columns for row in rows] == [
        {"question": "1, 2\nand 3?", "answer": "6"},
        {"question": 'say "x"', "answer": "7"},
    ]
    assert [row.place for row in rows] == ["t.CSV line 3", "t.CSV line 5"]


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"a,b\n1\n", RowInvalid, "t.csv line 2 has 1 values for 2 columns"),
        (b"a,b\n1,2,3\n", RowInvalid, "t.csv line 2 has 3 values"),
        (b"a,a\n1,2\n", FileUnreadable, "names a column twice"),
        (b'a\n"1\n', FileUnreadable, "not readable CSV"),
        (b"a\n\xff\n", FileUnreadable, "not readable CSV"),
        (b"a,b\n", DatasetEmpty, "no row"),
        (b"", DatasetEmpty, "no row"),
    ],
)
def test_bad_csv_is_refused(tmp_path: Path, content: bytes, error: type[InputRefused], words: str) -> None:
    assert words in refused(write(tmp_path, content, "t.csv"), error)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").mkdir()
    assert "cannot be read" in refused(tmp_path / "t.jsonl", FileUnreadable)
