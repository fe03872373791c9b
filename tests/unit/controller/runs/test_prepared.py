"""A run's model and data, read and checked before anything starts."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid
from controller.runs.prepared import Prepared, prepare
from shared.contracts.call import BatchKey
from shared.contracts.stage import Purpose
from shared.modeling.randomness import address_seed
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


def test_rows_are_held_out_of_the_training_files(root: Path) -> None:
    found = prepared(root, data__val_split=2, trainer__seed=3)
    assert (len(found.train.prompts), len(found.heldout), found.sampler.num_rows) == (6, 2, 6)
    texts = [prompt.text for prompt in (*found.train.prompts, *found.heldout)]
    assert sorted(texts) == sorted(prompt.text for prompt in prepared(root).train.prompts)
    assert found.total_steps == 2, "6 rows by 3"
    train, val = found.notes
    assert train.endswith("6 are trained on")
    assert val == "val: 2 of 8 training rows are held out by data.val_split, seed 3"
    assert prepared(root, data__val_split=2, trainer__seed=3).heldout == found.heldout
    assert len(prepared(root, data__val_split=0.5).heldout) == 4


def test_held_out_rows_that_are_trained_on_are_told(root: Path) -> None:
    rows = (root / "train.jsonl").read_text().splitlines(keepends=True)
    (root / "other.jsonl").write_text('{"prompt": "w5 w5 w5", "answer": "w1"}\n' + rows[0])
    assert (
        prepared(root, data__val_files="other.jsonl").notes[1].endswith("; 1 of them have a prompt that is trained on")
    )
    (root / "other.jsonl").write_text('{"prompt": "w5 w5 w5", "answer": "w1"}\n')
    assert "trained on" not in prepared(root, data__val_files="other.jsonl").notes[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(
    words=st.lists(st.integers(1, 4), min_size=3, max_size=8),
    batch_size=st.integers(1, 10),
    num_epochs=st.integers(1, 3),
    held_out=st.booleans(),
)
def test_every_row_is_used_in_each_epoch_and_no_two_samples_have_one_address(
    root: Path, words: list[int], batch_size: int, num_epochs: int, held_out: bool
) -> None:
    """Equal rows, epochs, sampling rounds, training and evaluation: none shares a key or a random number."""
    (root / "rows.jsonl").write_text("".join(f'{{"prompt": "w{word}", "answer": "w1"}}\n' for word in words))
    val = {"data__val_split": len(words) - 1} if held_out and len(set(words)) > 1 else {"data__val_files": "rows.jsonl"}
    try:
        found = prepared(
            root,
            data__train_files="rows.jsonl",
            data__train_batch_size=batch_size,
            trainer__total_epochs=num_epochs,
            **val,
        )
    except ConfigInvalid:
        assume(False)
    batches: list[tuple[BatchKey, str]] = []
    cursor = 0
    for step in range(found.total_steps):
        prompts, cursor = found.train_batch(cursor, batch_size)
        for round in range(2):
            key = BatchKey(run="r", purpose=Purpose.TRAIN, step=step, round=round)
            batches += [(key, prompt.row_uid) for prompt in prompts]
        key = BatchKey(run="r", purpose=Purpose.EVAL, step=step)
        batches += [(key, prompt.row_uid) for prompt in found.heldout]
    drawn = Counter(uid for key, uid in batches if key.purpose is Purpose.TRAIN and key.round == 0)
    assert set(drawn.values()) == {1}
    rows = Counter(uid.partition(".e")[0] for uid in drawn)
    assert rows.keys() == {prompt.row_uid for prompt in found.train.prompts}
    assert min(rows.values()) >= num_epochs
    assert rows.total() - num_epochs * len(rows) < batch_size, "only the last batch is filled from the next epoch"
    assert not {prompt.row_uid for prompt in found.train.prompts} & {prompt.row_uid for prompt in found.heldout}
    seeds = [
        address_seed(1, key.purpose, key.step, key.round, uid, sample) for key, uid in batches for sample in range(2)
    ]
    assert len(set(seeds)) == len(seeds)
    names = [(key.model_dump_json(), uid) for key, uid in batches]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "steps", [{"trainer__total_epochs": 2}, {"trainer__total_training_steps": 3, "trainer__total_epochs": 5}]
)
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_learning_rate_that_has_no_step_to_fall_in_is_refused(
    root: Path, steps: dict[str, int], schedule: str
) -> None:
    """8 rows by 6 are 3 steps in 2 epochs, whoever counts them."""
    size = {"data__train_batch_size": 6, "actor__optim__lr_scheduler_type": schedule} | steps
    prepared(root, actor__optim__lr_warmup_steps=2, **size)
    with pytest.raises(ConfigInvalid) as caught:
        prepared(root, actor__optim__lr_warmup_steps=3, **size)
    (problem,) = caught.value.problems
    assert problem.field == "actor.optim.lr_warmup_steps"
    assert f"a {schedule} learning rate falls after its warm-up, and the run has only 3 steps" in problem.reason
    assert problem.suggestion == "use at most 2, or train longer"


def other_model(root: Path, name: str, **words: Any) -> Path:
    """The policy's model again, with some of its words changed: ``{word: id}``, ``None`` to leave it out."""
    folder = root / name
    shutil.copytree(root / "model", folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"] | words
    tokenizer["model"]["vocab"] = {word: id for word, id in vocabulary.items() if id is not None}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


ALL = {"algorithm__adv_estimator": "gae", "actor__use_kl_loss": True}


def test_critic_and_reference_may_be_other_models_with_the_policys_words(root: Path) -> None:
    critic, reference = other_model(root, "critic"), other_model(root, "reference", extra=22)
    found = prepared(root, **ALL, critic__model__path="critic", reference__model__path="reference")
    assert found.other_models == {"critic.model.path": critic, "reference.model.path": reference}
    (critic / "tokenizer.json").unlink()
    prepared(root, **ALL, critic__model__path="critic")
    assert prepared(root, **ALL).other_models == {}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"w3": 6, "w4": 5}, "the token 'w3' has id 5 in model.path and 6 here; 2 of 22 differ"),
        ({"w19": None}, "the token 'w19' has id 21 in model.path and none here; 1 of 22 differ"),
    ],
)
def test_a_critic_or_a_reference_with_other_words_is_refused(root: Path, words: dict[str, Any], reason: str) -> None:
    other_model(root, "other", **words)
    with pytest.raises(ConfigInvalid) as caught:
        prepared(root, **ALL, critic__model__path="other", reference__model__path="other")
    assert [problem.field for problem in caught.value.problems] == ["critic.model.path", "reference.model.path"]
    assert all(reason in problem.reason for problem in caught.value.problems)
