"""All paths of a config are resolved at once."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.data.paths import resolve_paths


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


def test_a_hub_id_needs_a_hub(root: Path) -> None:
    config = config_of(model__path="org/name-0.5B")
    (problem,) = problems_of(config, root)
    assert "allow no hub" in problem.reason
    assert resolve_paths(config, [root], allow_hub=True).model.path == "org/name-0.5B"


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
