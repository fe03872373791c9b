"""All paths of a config are resolved at once."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.data.paths import resolve_paths

COMMIT = "a" * 40


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    for name in ("a.jsonl", "b.jsonl", "score.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def config_of(**keys: Any) -> RunConfig:
    minimal = {"model.path": "tiny", "data.train_files": "a.jsonl", "trainer.total_epochs": 1}
    return load_config(minimal | {"reward.rule": "exact_number"} | {k.replace("__", "."): v for k, v in keys.items()})


def problems_of(config: RunConfig, root: Path, *, allow_hub: bool = False) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        resolve_paths(config, [root], allow_hub=allow_hub)
    assert all(problem.suggestion for problem in caught.value.problems)
    return caught.value.problems


def test_every_path_becomes_absolute_and_nothing_else_changes(root: Path) -> None:
    config = config_of(
        data__train_files=["a.jsonl", "b.jsonl"],
        data__val_files="b.jsonl",
        reward__rule=None,
        reward__custom_reward_function__path="score.py",
        trainer__default_local_dir="new/folder",
        rollout__n=4,
    )
    found = resolve_paths(config, [root], allow_hub=False)
    assert found.model.path == str(root / "tiny")
    assert found.data.train_files == (str(root / "a.jsonl"), str(root / "b.jsonl"))
    assert found.data.val_files == (str(root / "b.jsonl"),)
    assert found.reward.custom_reward_function.path == str(root / "score.py")
    assert found.trainer.default_local_dir == str(root / "new" / "folder")
    assert found.rollout == config.rollout
    assert resolve_paths(found, [root], allow_hub=False) == found


def test_what_is_not_given_stays_null(root: Path) -> None:
    found = resolve_paths(config_of(), [root], allow_hub=False)
    assert found.data.val_files is None
    assert found.trainer.default_local_dir is None
    assert found.reward.custom_reward_function.path is None


def test_all_bad_paths_are_listed(root: Path) -> None:
    config = config_of(
        model__path="nothing",
        data__train_files=["a.jsonl", "missing.jsonl", "/etc/passwd"],
        data__val_files="tiny",
        reward__rule=None,
        reward__custom_reward_function__path="../score.py",
        trainer__default_local_dir="a.jsonl",
    )
    found = [(problem.field, problem.reason) for problem in problems_of(config, root)]
    assert [field for field, _ in found] == [
        "model.path",
        "data.train_files",
        "data.train_files",
        "data.val_files",
        "reward.custom_reward_function.path",
        "trainer.default_local_dir",
    ]
    words = ["does not exist", "does not exist", "outside the roots", "not a file", "outside the roots", "not a folder"]
    assert all(word in reason for word, (_, reason) in zip(words, found, strict=True))


def test_a_folder_without_a_config_is_no_model(root: Path) -> None:
    (root / "empty").mkdir()
    (problem,) = problems_of(config_of(model__path="empty"), root)
    assert "no config.json" in problem.reason


@pytest.fixture
def cached(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only hub there is: its cache, with a model and a dataset."""
    hub = tmp_path_factory.mktemp("hub")
    for name in ("models--org--name-0.5B", "datasets--org--sums"):
        snapshot = hub / name / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        for file in ("config.json", "1.jsonl", "2.jsonl"):
            (snapshot / file).write_text("{}")
        (hub / name / "refs").mkdir()
        (hub / name / "refs" / "main").write_text(COMMIT)
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return hub


def test_a_hub_id_needs_a_hub_and_is_pinned_to_its_commit(root: Path, cached: Path) -> None:
    config = config_of(model__path="org/name-0.5B")
    (problem,) = problems_of(config, root)
    assert "allow no hub" in problem.reason
    found = resolve_paths(config, [root], allow_hub=True)
    assert found.model.path == f"org/name-0.5B@{COMMIT}"
    assert resolve_paths(found, [root], allow_hub=True) == found


def test_files_of_a_hub_dataset_stand_in_the_order_of_the_config(root: Path, cached: Path) -> None:
    on_hub = f"hf://datasets/org/sums@{COMMIT}"
    config = config_of(data__train_files=["a.jsonl", "hf://datasets/org/sums/*.jsonl", "b.jsonl"])
    found = resolve_paths(config, [root], allow_hub=True)
    assert found.data.train_files == (
        str(root / "a.jsonl"),
        f"{on_hub}/1.jsonl",
        f"{on_hub}/2.jsonl",
        str(root / "b.jsonl"),
    )
    assert resolve_paths(found, [root], allow_hub=True) == found


def test_what_a_hub_does_not_have_is_listed_with_the_rest(root: Path, cached: Path) -> None:
    config = config_of(
        model__path="org/other",
        data__train_files=["hf://datasets/org/sums/*.csv", "missing.jsonl"],
        data__val_files="tiny",
    )
    fields = [problem.field for problem in problems_of(config, root, allow_hub=True)]
    assert fields == ["model.path", "data.train_files", "data.train_files", "data.val_files"]
    (problem, *_) = problems_of(config_of(data__train_files="hf://datasets/org/sums/1.jsonl"), root)
    assert "settings allow none" in problem.reason


def test_a_folder_under_a_root_goes_before_a_hub_id(root: Path) -> None:
    (root / "org" / "name").mkdir(parents=True)
    config = config_of(model__path="org/name")
    (problem,) = problems_of(config, root, allow_hub=True)
    assert "no config.json" in problem.reason
    (root / "org" / "name" / "config.json").write_text("{}")
    assert resolve_paths(config, [root], allow_hub=True).model.path == str(root / "org" / "name")


@pytest.mark.parametrize("path", ["name", "a/b/c", "../org/name", "/org/name", "org/.."])
def test_what_is_no_hub_id_is_a_path(root: Path, path: str) -> None:
    (problem,) = problems_of(config_of(model__path=path), root, allow_hub=True)
    assert problem.field == "model.path"
