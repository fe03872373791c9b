"""What is a matter of the whole batch stays one, however many ranks share it: whitening, KL, entropy and weights."""

from typing import Any

import numpy as np
import pytest
import torch

from functions.learner.credit import assign_credit
from shared.training.rows import sort_rows
from tests.unit.functions.learner.builders import make_config, ragged_rows, with_numbers
from tests.unit.functions.learner.ranks.test_equal_updates import exact, update

CHOICES: dict[str, dict[str, Any]] = {
    "ppo": {"adv_estimator": "gae", "gamma": 0.9, "lam": 0.8, "entropy_coeff": 0.05, "rollout_is": "token"},
    "reinforce++": {
        "adv_estimator": "reinforce_plus_plus",
        "kl_penalty": "kl",
        "kl_coef": 0.3,
        "kl_controller": "adaptive",
        "ppo_epochs": 2,
        "loss_mode": "gspo",
        "loss_agg_mode": "seq-mean-token-mean",
    },
    "reinforce++ baseline": {
        "adv_estimator": "reinforce_plus_plus_baseline",
        "loss_mode": "cispo",
        "mask_truncated": True,
    },
}


@pytest.mark.parametrize("name", CHOICES)
def test_advantages_are_whitened_over_the_whole_batch(name: str) -> None:
    rows = sort_rows(with_numbers(ragged_rows(num_groups=5), "reference_logprobs", "values"))
    config = make_config(max_token_len=25, max_grad_norm=None, eps=1e-2, **CHOICES[name])
    [(expected, one)] = update(rows, config, 1)

    assert one.metrics["critic/advantages/mean"] == pytest.approx(0.0, abs=1e-6)
    for num_ranks in (2, 4):
        for weights, result in update(rows, config, num_ranks):
            torch.testing.assert_close(weights, expected, atol=2e-6, rtol=0)
            assert exact(result.metrics) == pytest.approx(exact(one.metrics), rel=1e-5, abs=1e-7)
            assert result.next_kl_coef == pytest.approx(one.next_kl_coef)
    if config.credit.kl_penalty is None:
        trained = np.concatenate([row.loss_mask for row in rows])
        credit = assign_credit(rows, config.credit, None)
        kept = torch.cat([numbers[: row.num_tokens] for row, numbers in zip(rows, credit.advantages, strict=True)])
        assert float(kept[torch.from_numpy(trained)].std()) == pytest.approx(1.0, abs=1e-4)
