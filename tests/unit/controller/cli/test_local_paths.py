from pathlib import Path

import pytest

from controller.cli.local_paths import resolve_document, resolve_overrides


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
    assert resolved == [f"model.path={folder / 'tiny'}", *overrides[1:]]
    assert len(notes) == 1
