"""Files of hub datasets, out of the hub's cache. Nothing here asks a network."""

from pathlib import Path

import pytest

from controller.runs.data.errors import PathNotFound
from controller.runs.data.hub import is_hub_file, local_file, pinned_files

COMMIT, CONVERTED = "a" * 40, "b" * 40
FIELD = "data.train_files"
FILES = ("README.md", "main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet", "main/test.parquet")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with a dataset, and another commit of it under a ref with slashes."""
    repository = tmp_path / "hub" / "datasets--org--sums"
    (repository / "blobs").mkdir(parents=True)
    (repository / "blobs" / "digest").write_text("content")
    for commit in (COMMIT, CONVERTED):
        for name in FILES:
            link = repository / "snapshots" / commit / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(repository / "blobs" / "digest")
    for ref, commit in (("main", COMMIT), ("refs/convert/parquet", CONVERTED)):
        (repository / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repository


def pinned(uri: str, *, allow_hub: bool = True) -> tuple[str, ...]:
    return pinned_files(uri, field=FIELD, allow_hub=allow_hub)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("main/test.parquet", ["main/test.parquet"]),
        ("main/train-*.parquet", ["main/train-00000-of-00002.parquet", "main/train-00001-of-00002.parquet"]),
        ("*test.parquet", ["main/test.parquet"]),
    ],
)
def test_every_matching_file_is_named_at_its_commit(cache: Path, pattern: str, names: list[str]) -> None:
    found = pinned(f"hf://datasets/org/sums/{pattern}")
    assert found == tuple(f"hf://datasets/org/sums@{COMMIT}/{name}" for name in names)
    for uri, name in zip(found, names, strict=True):
        assert pinned(uri) == (uri,)
        # Under its own name: the format is read off it, and the file behind the link has none.
        assert local_file(uri, field=FIELD) == cache / "snapshots" / COMMIT / name


def test_a_revision_may_have_slashes(cache: Path) -> None:
    (found,) = pinned("hf://datasets/org/sums@refs%2Fconvert%2Fparquet/main/test.parquet")
    assert found == f"hf://datasets/org/sums@{CONVERTED}/main/test.parquet"


def test_a_run_that_goes_on_reads_what_it_began_with(cache: Path) -> None:
    (found,) = pinned("hf://datasets/org/sums/main/test.parquet")
    (cache / "refs" / "main").write_text(CONVERTED)
    assert pinned(found) == (found,)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("hf://datasets/org/sums/main/*.csv", "no file of org/sums matches"),
        ("hf://datasets/org/sums/../../refs/main", "no file of org/sums matches"),
        ("hf://datasets/org/other/main/test.parquet", "the dataset org/other could not be had"),
        ("hf://datasets/org/sums@v2/main/test.parquet", "the dataset org/sums could not be had"),
        ("hf://datasets/org/sums", "does not name files"),
        ("hf://org/sums/main/test.parquet", "does not name files"),
    ],
)
def test_what_is_not_to_be_had_is_refused_with_what_to_do(cache: Path, uri: str, why: str) -> None:
    with pytest.raises(PathNotFound) as caught:
        pinned(uri)
    (problem,) = caught.value.problems
    assert problem.field == FIELD
    assert why in problem.reason
    assert problem.suggestion


def test_a_hub_has_to_be_allowed(cache: Path) -> None:
    with pytest.raises(PathNotFound) as caught:
        pinned("hf://datasets/org/sums/main/test.parquet", allow_hub=False)
    assert "RLHFLESS_ALLOW_HUB=1" in caught.value.problems[0].suggestion


def test_other_paths_are_files_here() -> None:
    assert not is_hub_file("/data/hf.parquet")
    assert local_file("/data/hf.parquet", field=FIELD) == Path("/data/hf.parquet")
