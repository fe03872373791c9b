import math

import pytest
import torch

from functions.learner.mismatch import rollout_mismatch

NAN, INF = float("nan"), float("inf")
MASK = torch.tensor([[True, True, False], [True, False, False]])
LEARNER = torch.tensor([[-1.0, -2.0, NAN], [-0.5, INF, -INF]])
ROLLOUT = torch.tensor([[-1.0, -1.0, 1e6], [-2.5, NAN, 1e6]])


def test_gauge_counts_trained_tokens_only_and_survives_garbage() -> None:
    gauge = rollout_mismatch(LEARNER, ROLLOUT, MASK)

    gaps = [0.0, math.exp(-1) - math.exp(-2), math.exp(-0.5) - math.exp(-2.5)]
    assert gauge.token_sums["training/rollout_probs_diff_mean"].item() == pytest.approx(sum(gaps))
    assert gauge.token_sums["training/rollout_logprobs_diff_mean"].item() == pytest.approx(3.0)
    assert gauge.maxima["training/rollout_probs_diff_max"].item() == pytest.approx(max(gaps))
    assert gauge.maxima["training/rollout_logprobs_diff_max"].item() == pytest.approx(2.0)


def test_gauge_is_zero_where_engine_and_learner_agree() -> None:
    gauge = rollout_mismatch(LEARNER, LEARNER, MASK)

    assert not any(value.item() for value in (*gauge.token_sums.values(), *gauge.maxima.values()))
