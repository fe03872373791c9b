import random

import numpy as np
import pytest
import torch

from functions.learner.errors import GroupTooSmall, MissingReward, MissingValues
from functions.learner.train_batch import prepare_batch
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_config, make_row, ragged_rows

CPU = torch.device("cpu")


def test_arrival_does_not_matter() -> None:
    rows = ragged_rows()
    arrived = rows.copy()
    random.Random(1).shuffle(arrived)

    ours, theirs = (prepare_batch(sort_rows(batch), make_config()) for batch in (rows, arrived))

    assert ours.rows == theirs.rows
    assert torch.equal(ours.advantages, theirs.advantages)
    assert ours.metrics == theirs.metrics


def test_a_micro_batch_is_cut_to_its_longest_completion() -> None:
    rows = [
        make_row("a", s, completion=range(n), reward=s, rollout_logprobs=np.arange(n)) for s, n in enumerate((2, 3, 1))
    ]
    batch = prepare_batch(rows, make_config(norm_adv_by_std=False))

    part = batch.select([2, 0], torch.tensor([[7.0] * 3, [8.0] * 3, [9.0] * 3]), CPU)

    assert part.loss_mask.tolist() == [[True, False], [True, True]]
    assert part.advantages.tolist() == [[1.0, 0.0], [-1.0, -1.0]]
    assert part.rollout_logprobs.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert part.old_logprobs.tolist() == [[9.0, 9.0], [7.0, 7.0]]
    assert batch.select([0], None, CPU).old_logprobs is None


def test_groups_without_spread_are_counted_and_left_out_on_demand() -> None:
    rewards = {"a": (1.0, 1.0), "b": (0.0, 1.0), "c": (0.0, 0.0), "d": (0.5, 1.0)}
    rows = [make_row(uid, s, reward=r) for uid, rs in rewards.items() for s, r in enumerate(rs)]

    kept = prepare_batch(rows, make_config())
    filtered = prepare_batch(rows, make_config(filter_groups=True))

    assert kept.trained_groups == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]
    assert filtered.trained_groups == [("b", 0), ("d", 0)]
    assert [batch.metrics["frac_reward_zero_std"] for batch in (kept, filtered)] == [0.5, 0.5]
    assert [batch.metrics["training/num_filtered_groups"] for batch in (kept, filtered)] == [0.0, 2.0]
    assert filtered.metrics["critic/score/mean"] == kept.metrics["critic/score/mean"] == 0.5625


def test_bad_rows_are_refused() -> None:
    with pytest.raises(MissingReward):
        prepare_batch([make_row("a", 0, reward=None), make_row("a", 1)], make_config())
    with pytest.raises(GroupTooSmall):
        prepare_batch([make_row("a", 0)], make_config())
    with pytest.raises(MissingValues, match="reference_logprobs"):
        prepare_batch([make_row("a", 0), make_row("a", 1)], make_config(kl_loss_type="mse"))


def test_groups_are_filtered_by_the_score_whatever_a_length_costs() -> None:
    rows = [
        make_row(uid, s, completion=range(2 + s), reward=r)
        for uid, rs in (("a", (1, 1)), ("b", (0, 1)))
        for s, r in enumerate(rs)
    ]
    config = make_config(filter_groups=True, overlong_len=2, max_completion_tokens=3)

    batch = prepare_batch(rows, config)

    assert batch.trained_groups == [("b", 0)]
    assert batch.advantages[0, 0] > batch.advantages[1, 0]


def test_numbers_that_some_rows_lack_are_none() -> None:
    rows = [make_row("a", 0, reference_logprobs=[-1.0, -1.0]), make_row("a", 1, reward=1.0)]

    assert prepare_batch(rows, make_config()).reference_logprobs is None
