import random

import numpy as np
import pytest

from functions.learner.rows import TrainRow
from shared.training.errors import InvalidRows
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_row


def test_plain_sequences_become_arrays() -> None:
    row = TrainRow(
        row_uid="a",
        sample=0,
        prompt_token_ids=(1, 2),  # type: ignore[arg-type]  # what this test is about
        completion_token_ids=[3],  # type: ignore[arg-type]
        loss_mask=[1],  # type: ignore[arg-type]
        rollout_logprobs=[-0.5],  # type: ignore[arg-type]
        reward=1.0,
        finish_reason="stop",
    )

    assert row.prompt_token_ids.dtype == np.int64
    assert row.completion_token_ids.dtype == np.int64
    assert row.loss_mask.dtype == np.bool_
    assert row.rollout_logprobs.dtype == np.float32
    assert row.num_tokens == 1


def test_order_is_by_row_round_and_sample_whatever_the_arrival() -> None:
    ordered = [
        make_row(uid, sample, round=round_) for uid in ("a", "b", "c") for round_ in (0, 1) for sample in (0, 1, 2, 10)
    ]
    arrived = ordered.copy()
    random.Random(0).shuffle(arrived)

    assert arrived != ordered
    assert sort_rows(arrived) == ordered


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"prompt": ()}, "empty prompt"),
        ({"completion": ()}, "empty prompt or completion"),
        ({"loss_mask": np.ones(3, bool)}, "loss_mask that do not fit its 2"),
        ({"rollout_logprobs": np.zeros(1)}, "rollout_logprobs that do not fit its 2"),
        ({"rollout_logprobs": np.array([-1.0, np.nan])}, "not finite"),
        ({"rollout_logprobs": np.array([-1.0, -np.inf])}, "rollout_logprobs that are not finite"),
        ({"reference_logprobs": np.zeros(3)}, "reference_logprobs that do not fit its 2"),
        ({"values": np.array([np.nan, 1.0])}, "values that are not finite"),
        ({"advantages": np.zeros(1)}, "advantages that do not fit its 2"),
        ({"old_logprobs": np.array([0.0, np.inf])}, "old_logprobs that are not finite"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_by_name(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidRows, match=reason) as error:
        make_row("uid-7", **fields)  # type: ignore[arg-type]  # one of several fields

    assert "uid-7" in str(error.value)


def test_masked_positions_may_hold_any_rollout_logprob() -> None:
    row = make_row(loss_mask=np.array([True, False]), rollout_logprobs=np.array([-1.0, np.nan]))

    assert np.isnan(row.rollout_logprobs[1])


def test_the_same_completion_twice_is_refused() -> None:
    with pytest.raises(InvalidRows, match="twice"):
        sort_rows([make_row("a", 0), make_row("a", 1), make_row("a", 0)])


def test_the_same_sample_of_two_rounds_is_two_rows() -> None:
    assert len(sort_rows([make_row("a", 0, round=0), make_row("a", 0, round=1)])) == 2


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRows, match="no rows"):
        sort_rows([])
