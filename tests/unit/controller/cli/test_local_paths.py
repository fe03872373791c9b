import json
from pathlib import Path

import pytest

from controller.cli.local_paths import LocalPath, resolve_document, resolve_overrides, rewrite_document


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    for name in ("train.jsonl", "more.jsonl", "reward.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"model": {"path": "tiny"}}, ["model", "path"]),
        ({"model.path": "tiny"}, ["model.path"]),
        ({"actor_rollout_ref": {"model": {"path": "tiny"}}}, ["actor_rollout_ref", "model", "path"]),
        ({"model_name_or_path": "tiny"}, ["model_name_or_path"]),
        ({"data": {"train_files": "train.jsonl"}}, ["data", "train_files"]),
        ({"data": {"val_files": "train.jsonl"}}, ["data", "val_files"]),
        ({"reward": {"custom_reward_function": {"path": "reward.py"}}}, ["reward", "custom_reward_function", "path"]),
        ({"custom_reward_function": {"path": "reward.py"}}, ["custom_reward_function", "path"]),
        ({"trainer": {"resume_from_path": "tiny"}}, ["trainer", "resume_from_path"]),
        ({"resume_from_checkpoint": "tiny"}, ["resume_from_checkpoint"]),
    ],
)
def test_a_path_is_meant_from_the_file(folder: Path, document: dict[str, object], path: list[str]) -> None:
    resolved, notes = resolve_document(document, folder)
    given, got = document, resolved
    for name in path:
        given, got = given[name], got[name]
    assert got == str(folder / given)
    assert notes == [f"{'.'.join(path)}: {given} is {folder / given}"]


def test_each_file_of_a_list_is_resolved(folder: Path) -> None:
    resolved, notes = resolve_document({"data": {"train_files": ["train.jsonl", "gone.jsonl", "more.jsonl"]}}, folder)
    expected = [str(folder / "train.jsonl"), "gone.jsonl", str(folder / "more.jsonl")]
    assert resolved == {"data": {"train_files": expected}}
    assert len(notes) == 2


@pytest.mark.parametrize("value", ["org/model", "/absolute/model", "", 7, None, "a\0b", True, 2.5])
def test_what_is_no_relative_path_of_this_machine_is_left_alone(folder: Path, value: object) -> None:
    document = {"model": {"path": value}, "data": {"train_files": [value]}}
    assert resolve_document(document, folder) == (document, [])


def test_other_keys_are_left_alone(folder: Path) -> None:
    document = {"trainer": {"default_local_dir": "tiny", "experiment_name": "tiny"}, "tiny": "tiny", 3: "tiny"}
    assert resolve_document(document, folder) == (document, [])


def test_overrides_are_meant_from_the_current_folder(folder: Path) -> None:
    overrides = ["model.path=tiny", "rollout.n=8", "data.train_files=[train.jsonl]", "tiny", "model.path=gone"]
    resolved, notes = resolve_overrides(overrides, folder)
    train = f'data.train_files=["{folder / "train.jsonl"}"]'
    assert resolved == [f"model.path={folder / 'tiny'}", "rollout.n=8", train, "tiny", "model.path=gone"]
    assert len(notes) == 2


@pytest.mark.parametrize(
    "value", ["[gone.jsonl, x]", "[train.jsonl", "[1, null]", "[!!x train.jsonl]", "{a: train.jsonl}"]
)
def test_an_override_without_such_a_path_is_left_as_it_is_spelled(folder: Path, value: str) -> None:
    for key in ("data.train_files", "reward.parts"):
        assert resolve_overrides([f"{key}={value}"], folder) == ([f"{key}={value}"], [])


PARTS = [
    {"name": "a", "function": "reward.py:score"},
    {"name": "b", "function": "gone.py:score"},
    {"name": "c", "function": "my.rewards:score"},
    {"name": "d", "model": {"path": "tiny", "max_tokens": 9}},
    {"name": "e", "rule": "math"},
    "nonsense",
]


def test_the_paths_of_a_rewards_parts_are_resolved(folder: Path) -> None:
    resolved, notes = resolve_document({"reward": {"parts": PARTS}}, folder)
    parts = resolved["reward"]["parts"]
    assert parts[0] == {"name": "a", "function": f"{folder / 'reward.py'}:score"}
    assert parts[3] == {"name": "d", "model": {"path": str(folder / "tiny"), "max_tokens": 9}}
    assert [parts[number] for number in (1, 2, 4, 5)] == [PARTS[number] for number in (1, 2, 4, 5)]
    assert notes == [
        f"reward.parts[0].function: reward.py is {folder / 'reward.py'}",
        f"reward.parts[3].model.path: tiny is {folder / 'tiny'}",
    ]
    (override,), _ = resolve_overrides([f"reward.parts={json.dumps(PARTS)}"], folder)
    assert json.loads(override.partition("=")[2]) == parts


def test_whoever_rewrites_is_told_what_a_path_is_for(folder: Path) -> None:
    found: list[LocalPath] = []

    def collect(path: LocalPath) -> str:
        found.append(path)
        return path.given

    document = {
        "data": {"train_files": ["train.jsonl", str(folder / "more.jsonl"), "dataset://x", "hf://datasets/a/b/c"]},
        "custom_reward_function.path": "reward.py",
        "reward": {"parts": PARTS},
        "reference.model.path": "tiny",
    }
    assert rewrite_document(document, folder, collect) == document
    assert [(path.key, path.is_code, path.place.name) for path in found] == [
        ("data.train_files", False, "train.jsonl"),
        ("data.train_files", False, "more.jsonl"),
        ("reward.custom_reward_function.path", True, "reward.py"),
        ("reward.parts.function", True, "reward.py"),
        ("reward.parts.model", False, "tiny"),
        ("reference.model.path", False, "tiny"),
    ]
