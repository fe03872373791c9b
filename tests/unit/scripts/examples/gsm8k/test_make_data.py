"""Rows of GSM8K with verl's columns."""

import pytest

from scripts.examples.gsm8k.make_data import INSTRUCTION, as_row

ROW = {"question": "How many?", "answer": "12*100 = <<12*100=1200>>1200\n#### 1,200"}


def test_a_row_has_messages_and_the_number_as_its_ground_truth() -> None:
    row = as_row(ROW, "test", 3)
    assert row["prompt"] == [{"role": "user", "content": f"How many? {INSTRUCTION}"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "1200"}
    assert (row["data_source"], row["ability"]) == ("openai/gsm8k", "math")
    assert row["extra_info"] == {"split": "test", "index": 3, **ROW}


def test_a_row_without_a_final_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="row 3 of test"):
        as_row(ROW | {"answer": "1200"}, "test", 3)
