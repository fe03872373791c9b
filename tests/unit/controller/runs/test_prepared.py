"""A run's model and data, read and checked before anything starts."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid
from controller.runs.prepared import Prepared, prepare
from tests.fakes.stack import write_data


def prepared(root: Path, **overrides: Any) -> Prepared:
    document: dict[str, Any] = {
        "model.path": "model",
        "data.train_files": "train.jsonl",
        "data.train_batch_size": 3,
        "data.max_response_length": 20,
        "reward.rule": "exact_match",
        "trainer.total_epochs": 1,
    }
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return prepare(load_config(document | named), [root], allow_hub=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_data(tmp_path)
    return tmp_path


def test_paths_are_resolved_rows_tokenised_and_the_length_of_the_run_is_known(root: Path) -> None:
    found = prepared(root, data__val_files="val.jsonl")
    assert found.model.path == str(root / "model")
    assert found.model_folder == root / "model"
    assert found.config.data.train_files == (str(root / "train.jsonl"),)
    assert found.eos_token_ids == (0,)
    assert found.train.prompts[1].token_ids == (3, 4)
    assert found.train.prompts[1].ground_truth == "w1"
    assert (len(found.train.prompts), len(found.heldout)) == (8, 4)
    assert found.total_steps == 3, "8 rows by 3"
    assert [note.partition(":")[0] for note in found.notes] == ["train", "val"]


def test_without_held_out_files_there_are_no_held_out_rows(root: Path) -> None:
    found = prepared(root)
    assert found.heldout == ()
    assert len(found.notes) == 1


def test_what_the_config_is_warned_of_is_told_with_the_rest(root: Path) -> None:
    first, second = prepared(root, rollout__top_p=0.9).notes
    assert (first.partition(":")[0], second.partition(":")[0]) == ("warning", "train")


def test_a_batch_begins_at_the_cursor_and_moves_it(root: Path) -> None:
    found = prepared(root, data__shuffle=False)
    first, cursor = found.train_batch(0, 3)
    assert ([prompt.text for prompt in first], cursor) == (["w0 w1", "w1 w2", "w2 w3"], 3)
    over_the_end, cursor = found.train_batch(6, 3)
    assert cursor == 9
    assert [prompt.row_uid for prompt in over_the_end] == ["train-000006.e0", "train-000007.e0", "train-000000.e1"]


def test_the_order_is_the_seeds_and_not_the_batch_sizes(root: Path) -> None:
    found = prepared(root, trainer__seed=5)
    whole, _ = found.train_batch(0, 8)
    parts = [*found.train_batch(0, 3)[0], *found.train_batch(3, 5)[0]]
    assert list(whole) == parts
    assert sorted(prompt.text for prompt in whole) == sorted(prompt.text for prompt in found.train.prompts)
    assert whole != prepared(root, trainer__seed=6).train_batch(0, 8)[0]


def test_a_builtin_rule_needs_the_ground_truth_and_a_function_does_not(root: Path) -> None:
    (root / "plain.jsonl").write_text('{"prompt": "w1 w2"}\n')
    (root / "reward.py").write_text("def compute_score(**_): return 1.0\n")
    with pytest.raises(ConfigInvalid, match="ground truth"):
        prepared(root, data__train_files="plain.jsonl", data__train_batch_size=1)
    found = prepared(
        root,
        data__train_files="plain.jsonl",
        data__train_batch_size=1,
        reward__rule=None,
        reward__custom_reward_function__path="reward.py",
    )
    assert found.train.prompts[0].ground_truth is None


def test_a_model_without_a_tokenizer_is_refused_by_its_key(root: Path) -> None:
    (root / "model" / "tokenizer.json").unlink()
    with pytest.raises(ConfigInvalid) as caught:
        prepared(root)
    assert [problem.field for problem in caught.value.problems] == ["model.path"]
    assert "tokenizer.json" in caught.value.problems[0].reason


def test_a_prompt_that_leaves_no_room_in_the_context_is_refused(root: Path) -> None:
    with pytest.raises(ConfigInvalid, match="context of 64"):
        prepared(root, data__max_response_length=63)
