"""The prompts of the SmolLM2 example."""

import json
from pathlib import Path
from typing import Any

import pytest

from functions.reward.rules.reasoning_gym import reasoning_gym
from scripts.examples.smollm2.make_data import NUM_EXAMPLES, NUM_HELDOUT, NUM_TRAIN, TASKS, make_data

pytest.importorskip("reasoning_gym", reason="the extra `examples` is not installed")


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_data(folder)
    return folder


def test_each_task_has_its_questions_and_none_is_in_both_files(folder: Path) -> None:
    rows = {split: read(folder / f"{split}.jsonl") for split in ("train", "heldout")}
    for split, number in (("train", NUM_TRAIN), ("heldout", NUM_HELDOUT)):
        tasks = [row["metadata"]["source_dataset"] for row in rows[split]]
        assert {task: tasks.count(task) for task in TASKS} == dict.fromkeys(TASKS, number)
    questions = [row["question"] for row in (*rows["train"], *rows["heldout"])]
    shown = {message["content"] for row in rows["train"] for message in row["prompt"][1:-1:2]}
    assert len(set(questions)) == len(questions)
    assert len(shown) == NUM_EXAMPLES * len(TASKS)
    assert shown.isdisjoint(questions)


def test_they_are_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    make_data(tmp_path)
    for file in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


def test_a_prompt_shows_answered_questions_of_the_task_and_ends_with_its_own(folder: Path) -> None:
    for row in read(folder / "heldout.jsonl"):
        roles = [message["role"] for message in row["prompt"]]
        assert roles == ["system", *["user", "assistant"] * NUM_EXAMPLES, "user"]
        assert row["prompt"][-1]["content"] == row["question"]
        assert row["data_source"] == f"reasoning_gym/{row['metadata']['source_dataset']}"


def test_its_own_answer_earns_the_reward_and_a_shown_one_only_where_it_is_the_same(folder: Path) -> None:
    for row in read(folder / "heldout.jsonl"):
        columns = {name: value for name, value in row.items() if name != "prompt"}
        shown = row["prompt"][2]["content"]
        right = f"<answer>{row['answer']}</answer>"
        assert reasoning_gym(right, row["answer"], "", columns).reward == 1.0
        assert reasoning_gym(shown, row["answer"], "", columns).reward == float(shown == right)
