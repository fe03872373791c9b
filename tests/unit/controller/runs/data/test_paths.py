"""All paths of a config are resolved at once."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.data.library import DatasetLibrary, StoredDataset
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
    words = [
        "does not exist",
        "does not exist",
        "outside the roots",
        "is not a file",
        "outside the roots",
        "not a folder",
    ]
    assert all(word in reason for word, (_, reason) in zip(words, found, strict=True))


def parts_of(root: Path, *parts: dict[str, Any], allow_hub: bool = False) -> list[Any]:
    numbered = [{"name": f"part{number}", **part} for number, part in enumerate(parts)]
    found = resolve_paths(config_of(reward__rule=None, reward__parts=numbered), [root], allow_hub=allow_hub)
    assert resolve_paths(found, [root], allow_hub=allow_hub) == found
    assert found.reward.parts is not None
    return [part.function or part.model or part.rule for part in found.reward.parts]


def test_the_paths_of_a_rewards_parts_become_absolute(root: Path) -> None:
    found = parts_of(
        root,
        {"function": "score.py:length"},
        {"function": "my.rewards:score"},
        {"model": {"path": "tiny", "max_tokens": 64}},
        {"rule": "math"},
    )
    assert found == [
        f"{root / 'score.py'}:length",
        "my.rewards:score",
        {"path": str(root / "tiny"), "max_tokens": 64},
        "math",
    ]


def test_a_reward_model_may_be_on_a_hub(root: Path, cached: Path) -> None:
    assert parts_of(root, {"model": {"path": "org/name-0.5B"}}, allow_hub=True) == [{"path": f"org/name-0.5B@{COMMIT}"}]


def test_the_models_of_reference_and_critic_are_resolved(root: Path) -> None:
    models = {"reference__model__path": "tiny", "critic__model__path": "tiny"}
    ppo = {"algorithm__adv_estimator": "gae", "algorithm__use_kl_in_reward": True}
    found = resolve_paths(config_of(**models, **ppo), [root], allow_hub=False)
    assert found.reference.model.path == found.critic.model.path == str(root / "tiny")
    outside = {"reference__model__path": "../tiny", "critic__model__path": "gone"}
    problems = problems_of(config_of(**outside, **ppo), root)
    assert [problem.field for problem in problems] == ["reference.model.path", "critic.model.path"]


def test_bad_paths_of_a_rewards_parts_are_named_by_part(root: Path) -> None:
    parts = [
        {"name": "a", "function": "gone.py:score"},
        {"name": "b", "function": "/etc/passwd.py:score"},
        {"name": "c", "rule": "math"},
        {"name": "d", "model": {"path": "../tiny"}},
    ]
    problems = problems_of(config_of(reward__rule=None, reward__parts=parts), root)
    assert [(problem.field, problem.reason.partition("'")[2].partition("'")[2][:12]) for problem in problems] == [
        ("reward.parts[0].function", " does not ex"),
        ("reward.parts[1].function", " lies outsid"),
        ("reward.parts[3].model.path", " lies outsid"),
    ]


def test_a_saved_dataset_is_a_folder_and_one_split_of_it(root: Path) -> None:
    for split in ("train", "test"):
        (root / "saved" / split).mkdir(parents=True)
        (root / "saved" / split / "state.json").write_text("{}")
    (root / "saved" / "dataset_dict.json").write_text("{}")
    found = resolve_paths(config_of(data__train_files="saved/train"), [root], allow_hub=False)
    assert found.data.train_files == (str(root / "saved" / "train"),)
    (problem,) = problems_of(config_of(data__train_files="saved/"), root)
    assert problem.suggestion == "name one of saved/test, saved/train"


def test_an_uploaded_dataset_stays_as_it_is_named(root: Path) -> None:
    library = DatasetLibrary(root / "datasets")
    id, gone = "a" * 40, "b" * 40
    folder = library.begin()
    (folder / "rows" / "t.jsonl").write_text("{}")
    library.keep(
        folder,
        StoredDataset(id=id, name="t.jsonl", num_rows=1, num_bytes=2, columns=(), created_at=1.0),
    )
    config = config_of(data__train_files=[f"dataset://{id}", "a.jsonl"])
    found = resolve_paths(config, [root], allow_hub=False, library=library)
    assert found.data.train_files == (f"dataset://{id}", str(root / "a.jsonl"))
    for missing in (gone, "../" * 20, "", f"{id}/rows"):
        with pytest.raises(ConfigInvalid, match="no uploaded dataset"):
            resolve_paths(config_of(data__val_files=f"dataset://{missing}"), [root], allow_hub=False, library=library)
    (problem,) = problems_of(config, root)
    assert "none are stored here" in problem.reason


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
