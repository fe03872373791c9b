"""Lengths of answers: which text answers a row, and how many tokens it has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from controller.runs.answers import answer_text, answer_tokens
from shared.contracts.prompt import Prompt
from shared.modeling.tokenizer import Tokenizer
from tests.fakes.world import config_of, prepared_of


def prompt(uid: str = "train-000001.e0", ground_truth: str | None = None, **columns: Any) -> Prompt:
    return Prompt(row_uid=uid, token_ids=(1,), text="x", ground_truth=ground_truth, columns=columns)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (prompt(), None),
        (prompt(ground_truth=""), None),
        (prompt(ground_truth="72"), "72"),
        (prompt(ground_truth="72", answer="48 / 2 = 24, so 72"), "48 / 2 = 24, so 72"),
        (prompt(ground_truth="the longest of all", solution="short"), "the longest of all"),
        (prompt(ground_truth="72", extra_info={"answer": "as verl stores it", "index": 3}), "as verl stores it"),
        (prompt(ground_truth="72", answer=["a list"], solution=7, extra_info="no object"), "72"),
        (prompt(extra_info={"answer": None}), None),
    ],
)
def test_the_longest_text_that_answers_counts(row: Prompt, expected: str | None) -> None:
    assert answer_text(row) == expected


async def test_tokens_are_the_models(tmp_path: Path) -> None:
    fast = FastTokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    fast.pre_tokenizer = Whitespace()
    tokenizer = Tokenizer(
        fast=fast, special_tokens={}, eos_token_ids=(0,), pad_token_id=0, chat_template=None, fingerprint="f"
    )
    rows = [prompt("a", "one two three"), prompt("b"), prompt("c", "one")]
    prepared = prepared_of(config_of(), tmp_path)
    assert await answer_tokens(prepared, rows) == {}
    assert await answer_tokens(replace(prepared, tokenizer=tokenizer), rows) == {"a": 3, "c": 1}
