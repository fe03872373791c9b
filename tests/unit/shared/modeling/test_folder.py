"""Model folders by path, and by hub id out of the hub's cache. Nothing here asks a network."""

from pathlib import Path

import pytest

from shared.modeling.errors import UnknownModel
from shared.modeling.folder import CONFIG_FILES, model_folder, pinned_hub_id

COMMIT, OLDER = "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with two commits of one model."""
    repository = tmp_path / "hub" / "models--org--tiny"
    for commit in (COMMIT, OLDER):
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "refs" / "v1.0").write_text(OLDER)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repository


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert model_folder(tmp_path, CONFIG_FILES) == tmp_path


@pytest.mark.parametrize(
    ("hub_id", "commit"),
    [
        ("org/tiny", COMMIT),
        ("org/tiny@main", COMMIT),
        ("org/tiny@v1.0", OLDER),
        (f"org/tiny@{OLDER}", OLDER),
    ],
)
def test_a_hub_id_is_found_in_the_cache_and_pinned_to_its_commit(cache: Path, hub_id: str, commit: str) -> None:
    assert model_folder(hub_id, CONFIG_FILES) == cache / "snapshots" / commit
    assert pinned_hub_id(hub_id) == f"org/tiny@{commit}"


def test_a_pinned_id_stays_where_it_is_when_the_branch_moves_on(cache: Path) -> None:
    pinned = pinned_hub_id("org/tiny")
    (cache / "refs" / "main").write_text(OLDER)
    assert pinned_hub_id("org/tiny") == f"org/tiny@{OLDER}"
    assert pinned_hub_id(pinned) == pinned


@pytest.mark.parametrize("hub_id", ["org/other", "org/tiny@v2.0", f"org/tiny@{'c' * 40}"])
def test_what_is_not_in_the_cache_is_unknown_without_a_network(cache: Path, hub_id: str) -> None:
    with pytest.raises(UnknownModel, match="neither a folder here nor a model"):
        model_folder(hub_id, CONFIG_FILES)


@pytest.mark.parametrize("path", ["a/b/c", "../org/tiny", "/org/tiny", "org/tiny@", "@main", "org/ti ny"])
def test_what_is_neither_a_folder_nor_a_hub_id_is_unknown(cache: Path, path: str) -> None:
    with pytest.raises(UnknownModel, match="There is no model folder"):
        model_folder(path, CONFIG_FILES)
