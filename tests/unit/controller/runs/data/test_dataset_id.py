"""Ids and names of uploaded datasets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.runs.data.dataset_id import ContentHash, id_of_file, is_dataset_uri, name_for, uri_of
from controller.runs.data.errors import UploadInvalid


def id_of(name: str, *chunks: bytes) -> str:
    content = ContentHash(name)
    for chunk in chunks:
        content.update(chunk)
    return content.id


@given(st.lists(st.binary(max_size=5), max_size=5))
def test_the_id_is_the_contents_however_it_comes(chunks: list[bytes]) -> None:
    assert id_of("a.jsonl", *chunks) == id_of("b.ndjson", b"".join(chunks))
    assert id_of("a.jsonl", *chunks) != id_of("a.jsonl", *chunks, b"x")


def test_equal_bytes_in_two_formats_are_two_datasets() -> None:
    assert id_of("a.csv", b"x") != id_of("a.jsonl", b"x")
    assert id_of("a.JSONL", b"x") == id_of("a.jsonl", b"x")


def test_a_file_has_the_id_of_its_content(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{}" * 2**20)
    assert id_of_file(tmp_path / "a.jsonl") == id_of("x.jsonl", b"{}" * 2**20)


@pytest.mark.parametrize(
    "name",
    ["", "train", "train.txt", ".jsonl", "../a.jsonl", "a/b.jsonl", "a\0.jsonl", "a\n.jsonl", "x" * 200 + ".jsonl"],
)
def test_a_name_that_no_dataset_can_have_is_refused(name: str) -> None:
    with pytest.raises(UploadInvalid) as caught:
        ContentHash(name)
    assert caught.value.problems[0].field == "name"


@given(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_every_file_has_a_name_that_a_dataset_can_have(stem: str) -> None:
    ContentHash(name_for(Path("folder", f"{stem}.jsonl")))


@pytest.mark.parametrize(
    ("file", "name"),
    [("train.jsonl", "train.jsonl"), ("mes données.csv", "mes donn_es.csv"), ("..é.json", "data.json")],
)
def test_a_name_is_close_to_the_files(file: str, name: str) -> None:
    assert name_for(Path(file)) == name


def test_a_dataset_is_named_by_its_id() -> None:
    assert is_dataset_uri(uri_of("a" * 40))
    assert not is_dataset_uri("hf://datasets/org/name/file")
