"""Rows to tokenised prompts, and every row that cannot be one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.data import DataConfig
from controller.runs.data.dataset import Dataset, Split, load_dataset
from controller.runs.data.errors import ColumnMissing, DatasetEmpty, InputRefused, RowInvalid
from controller.runs.data.sampler import Sampler
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import PromptBatch
from shared.modeling.tokenizer import Tokenizer


class CharTokenizer:
    """One token per character; the chat template writes `role:content|` and accepts no tool message."""

    def encode(self, text: str) -> list[int]:
        return [ord(char) for char in text]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return "".join(chr(token_id) for token_id in token_ids)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, variables: Mapping[str, Any] | None = None
    ) -> list[int]:
        if any(message["role"] == "tool" for message in messages):
            raise InvalidInput("no tool messages")
        said = "".join(f"{message['role']}:{message['content']}|" for message in messages)
        return self.encode(said + "".join(f"{name}={value}" for name, value in (variables or {}).items()))


def load(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    split: Split = "train",
    context_tokens: int | None = None,
    needs_ground_truth: bool = False,
    **keys: Any,
) -> Dataset:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_dataset(
        [file],
        split,
        DataConfig(train_files=(str(file),), **keys),
        CharTokenizer(),
        context_tokens=context_tokens,
        needs_ground_truth=needs_ground_truth,
    )


def refused(error: type[InputRefused], folder: Path, rows: Sequence[Mapping[str, Any]], **keys: Any) -> str:
    with pytest.raises(error) as caught:
        load(folder, rows, **keys)
    (problem,) = caught.value.problems
    assert problem.field.startswith("data.")
    assert problem.suggestion
    return f"{problem.field} {problem.reason}"


def test_a_text_prompt_is_taken_as_it_is(tmp_path: Path) -> None:
    row = {"prompt": " 1+1=", "answer": "2", "level": 3}
    (prompt,) = load(tmp_path, [row]).prompts
    assert prompt.row_uid == "train-000000"
    assert prompt.token_ids == (32, 49, 43, 49, 61)
    assert prompt.text == " 1+1="
    assert prompt.messages is None
    assert prompt.ground_truth == "2"
    assert prompt.columns == {"answer": "2", "level": 3}


def test_messages_go_through_the_chat_template(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "1+1?"}]
    row = {
        "data_source": "sums",
        "prompt": messages,
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 7},
    }
    (prompt,) = load(tmp_path, [row]).prompts
    assert prompt.text == "user:1+1?|"
    assert prompt.token_ids == tuple(CharTokenizer().encode("user:1+1?|"))
    assert prompt.messages == tuple(messages)
    assert prompt.data_source == "sums"
    assert prompt.ground_truth == "2"
    assert prompt.columns["extra_info"] == {"index": 7}


def test_plain_text_becomes_a_users_message_if_asked(tmp_path: Path) -> None:
    (prompt,) = load(tmp_path, [{"input": "1+1?", "label": "2"}], apply_chat_template=True).prompts
    assert prompt.text == "user:1+1?|"
    assert prompt.messages == ({"role": "user", "content": "1+1?"},)
    assert "prompt is empty" in refused(RowInvalid, tmp_path, [{"prompt": ""}], apply_chat_template=True)


def test_the_templates_variables_are_the_configs(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": "q"}]}]
    (prompt,) = load(tmp_path, rows, apply_chat_template_kwargs={"think": False}).prompts
    assert prompt.text == "user:q|think=False"


def test_a_system_prompt_is_for_rows_that_have_none(tmp_path: Path) -> None:
    user, own = {"role": "user", "content": "q"}, {"role": "system", "content": "own"}
    prompts = load(tmp_path, [{"prompt": [user]}, {"prompt": [own, user]}], system_prompt="be brief").prompts
    assert [prompt.text for prompt in prompts] == ["system:be brief|user:q|", "system:own|user:q|"]
    assert prompts[0].messages == ({"role": "system", "content": "be brief"}, user)


def test_a_system_prompt_has_no_place_in_plain_text(tmp_path: Path) -> None:
    reason = refused(RowInvalid, tmp_path, [{"prompt": "p"}], system_prompt="be brief")
    assert "no place for data.system_prompt; set data.apply_chat_template" in reason
    (prompt,) = load(tmp_path, [{"prompt": "p"}], system_prompt="be brief", apply_chat_template=True).prompts
    assert prompt.text == "system:be brief|user:p|"


def test_a_recognised_data_source_may_be_missing_from_some_rows(tmp_path: Path) -> None:
    rows = [{"question": "q", "task": "sums"}, {"question": "q"}, {"question": "q", "task": 3}]
    assert [prompt.data_source for prompt in load(tmp_path, rows).prompts] == ["sums", "", ""]


def test_a_data_source_that_was_asked_for_is_in_every_row(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "meta": {"set": "x"}}, {"prompt": "p", "meta": {"set": 3}}]
    assert [prompt.data_source for prompt in load(tmp_path, rows, reward_fn_key="meta.set").prompts] == ["x", "3"]
    reason = refused(RowInvalid, tmp_path, [*rows, {"prompt": "p"}], reward_fn_key="meta.set")
    assert "line 3: column 'meta.set' is missing or null" in reason


@pytest.mark.parametrize(
    ("value", "text"), [("a b", "a b"), (4, "4"), (0.5, "0.5"), (True, "true"), (["a", 1], '["a", 1]')]
)
def test_a_ground_truth_is_text(tmp_path: Path, value: object, text: str) -> None:
    assert load(tmp_path, [{"prompt": "p", "answer": value}]).prompts[0].ground_truth == text


def test_equal_rows_are_different_groups(tmp_path: Path) -> None:
    row = {"prompt": "p", "answer": "a"}
    assert [prompt.row_uid for prompt in load(tmp_path, [row, row], split="val").prompts] == [
        "val-000000",
        "val-000001",
    ]


def test_prompts_survive_the_wire(tmp_path: Path) -> None:
    rows = [{"prompt": "ä\U0001f600", "answer": "a", "deep": {"x": [1, None, 0.1]}}]
    batch = PromptBatch(prompts=load(tmp_path, rows).prompts)
    assert PromptBatch.model_validate_json(batch.model_dump_json()) == batch


def test_the_note_says_what_was_chosen(tmp_path: Path) -> None:
    note = load(tmp_path, [{"question": "q", "answer": "a"}]).note
    assert "1 rows of rows.jsonl" in note
    assert "'question' (verifiers)" in note
    assert "'answer' (verifiers)" in note


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"answer": "a"}, "column 'prompt' is missing or null"),
        ({"prompt": None, "answer": "a"}, "column 'prompt' is missing or null"),
        ({"prompt": "p"}, "column 'answer' is missing or null"),
        ({"prompt": "p", "answer": None}, "column 'answer' is missing or null"),
        ({"prompt": "", "answer": "a"}, "column 'prompt' is empty"),
        ({"prompt": 3, "answer": "a"}, "text or a list of chat messages, not 3"),
        ({"prompt": [], "answer": "a"}, "text or a list of chat messages"),
        ({"prompt": ["hi"], "answer": "a"}, "message 0 has no role"),
        ({"prompt": [{"role": "user"}], "answer": "a"}, "message 0 has no text"),
        ({"prompt": [{"role": "tool", "content": "s"}], "answer": "a"}, "no tool messages"),
    ],
)
def test_a_row_that_is_no_prompt_is_named(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    reason = refused(RowInvalid, tmp_path, [{"prompt": "p", "answer": "a"}, row])
    assert reason.startswith("data.train_files rows.jsonl line 2: ")
    assert words in reason


def test_a_fault_of_held_out_rows_is_under_their_key(tmp_path: Path) -> None:
    assert refused(RowInvalid, tmp_path, [{"prompt": ""}], split="val").startswith("data.val_files")


def test_files_without_rows_are_refused(tmp_path: Path) -> None:
    assert "no row in rows.jsonl" in refused(DatasetEmpty, tmp_path, [])


def test_a_reward_without_its_ground_truth_is_refused(tmp_path: Path) -> None:
    assert "ground truth" in refused(ColumnMissing, tmp_path, [{"prompt": "p"}], needs_ground_truth=True)


LENGTHS = [{"prompt": "x" * length} for length in (3, 4, 5, 6)]


def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path) -> None:
    reason = refused(RowInvalid, tmp_path, LENGTHS, max_prompt_length=4)
    assert "line 3: the prompt has 5 tokens, more than data.max_prompt_length, 4 (1 more are too long)" in reason


def test_a_prompt_that_leaves_no_room_for_the_completion_is_refused(tmp_path: Path) -> None:
    reason = refused(RowInvalid, tmp_path, LENGTHS, max_response_length=10, context_tokens=15)
    assert "line 4: the prompt has 6 tokens, more than 5: the model's context of 15" in reason


def test_the_longest_prompt_that_fits_is_used(tmp_path: Path) -> None:
    assert len(load(tmp_path, LENGTHS, max_prompt_length=6, max_response_length=10, context_tokens=16).prompts) == 4


def test_long_prompts_are_left_out_and_counted_if_asked(tmp_path: Path) -> None:
    dataset = load(tmp_path, [*LENGTHS, {"prompt": "y"}], max_prompt_length=4, filter_overlong_prompts=True)
    assert [prompt.row_uid for prompt in dataset.prompts] == ["train-000000", "train-000001", "train-000004"]
    assert dataset.num_filtered == 2
    assert "2 left out as too long" in dataset.note


def test_leaving_everything_out_is_refused(tmp_path: Path) -> None:
    reason = refused(DatasetEmpty, tmp_path, LENGTHS, max_prompt_length=2, filter_overlong_prompts=True)
    assert "all 4 prompts are too long" in reason


def test_a_completion_as_long_as_the_context_is_refused(tmp_path: Path) -> None:
    reason = refused(InputRefused, tmp_path, LENGTHS, max_response_length=16, context_tokens=16)
    assert reason.startswith("data.max_response_length")


def test_a_row_that_is_in_a_batch_twice_is_two_groups(tmp_path: Path) -> None:
    dataset = load(tmp_path, LENGTHS[:2])
    batch = dataset.take(Sampler(num_rows=2, batch_size=5, seed=1, shuffle=True).batch(0))
    assert len({prompt.row_uid for prompt in batch}) == 5
    assert {prompt.row_uid for prompt in batch[:2]} == {"train-000000.e0", "train-000001.e0"}
    for prompt in batch:
        assert prompt.text == next(row for row in dataset.prompts if prompt.row_uid.startswith(row.row_uid)).text


def test_evaluation_takes_every_row_once(tmp_path: Path) -> None:
    dataset = load(tmp_path, [{"prompt": str(number)} for number in range(7)], split="val")
    assert [len(batch) for batch in dataset.batches(3)] == [3, 3, 1]
    assert sum(dataset.batches(3), ()) == dataset.batches(None)[0] == dataset.prompts


def test_the_real_tokenizer_fits(tmp_path: Path) -> None:
    vocabulary = {char: number for number, char in enumerate(" 0123456789+=:<>eosur")}
    model: dict[str, Any] = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": [],
        "unk_token": None,
        "fuse_unk": False,
        "dropout": None,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"})
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1+2="}\n{"prompt": [{"role": "user", "content": "1+2"}]}\n')
    dataset = load_dataset(
        [rows],
        "train",
        DataConfig(train_files=("rows.jsonl",)),
        Tokenizer.load(tmp_path),
        context_tokens=None,
        needs_ground_truth=False,
    )
    text, chat = dataset.prompts
    assert text.token_ids == tuple(vocabulary[char] for char in "1+2=")
    assert chat.token_ids == tuple(vocabulary[char] for char in "user:1+2")


def test_a_model_without_a_chat_template_refuses_messages(tmp_path: Path) -> None:
    class Plain(CharTokenizer):
        def apply_chat_template(
            self, messages: Sequence[Mapping[str, Any]], *, variables: Mapping[str, Any] | None = None
        ) -> list[int]:
            raise InvalidInput("The model has no chat template.")

    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": [{"role": "user", "content": "q"}]}\n')
    with pytest.raises(RowInvalid, match="no chat template"):
        load_dataset(
            [file],
            "train",
            DataConfig(train_files=(str(file),)),
            Plain(),
            context_tokens=None,
            needs_ground_truth=False,
        )
