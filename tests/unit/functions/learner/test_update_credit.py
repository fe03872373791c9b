from dataclasses import replace
from typing import Any

import pytest
import torch

from functions.learner.credit_pass import credit_pass
from functions.learner.policy_logprobs import logprobs_of_all
from functions.learner.rows import TrainRow
from shared.contracts.completion import SampleId
from tests.unit.functions.learner.builders import make_config, ragged_rows, with_numbers
from tests.unit.functions.learner.learner import Learner

PENALISED = make_config(
    kl_penalty="kl",
    kl_coef=0.3,
    kl_controller="adaptive",
    ppo_epochs=2,
    ppo_mini_batch_size=2,
    max_token_len=30,
    clip_ratio_c=3.0,
)


def penalised_rows() -> list[TrainRow]:
    return with_numbers(ragged_rows(), "reference_logprobs", "values")


def with_stored_credit(learner: Learner, rows: list[TrainRow]) -> list[TrainRow]:
    """The rows as a call for their advantages leaves them for the update."""
    config = learner.config
    logprobs = logprobs_of_all(learner.model, rows, temperature=config.temperature, max_token_len=config.max_token_len)
    made = credit_pass(rows, config.credit, logprobs)
    vectors = made.vectors()
    ids = [SampleId(row.row_uid, row.sample) for row in made.rows]
    return [
        replace(row, advantages=vectors["advantages"][id], old_logprobs=vectors["old_logprobs"][id])
        for row, id in zip(made.rows, ids, strict=True)
    ]


@pytest.mark.parametrize("estimator", ["gae", "grpo", "reinforce_plus_plus"])
def test_advantages_of_a_call_of_their_own_make_the_same_update(estimator: str) -> None:
    config = replace(PENALISED, credit=replace(PENALISED.credit, adv_estimator=estimator))
    together, apart = Learner(config), Learner(config)

    expected = together.step(penalised_rows())
    result = apart.step(with_stored_credit(apart, penalised_rows()))

    assert torch.equal(apart.weights(), together.weights())
    assert expected.next_kl_coef != config.credit.kl_coef
    assert result.next_kl_coef is None
    assert result.metrics.items() <= expected.metrics.items()
    assert expected.metrics["actor/reward_kl_penalty"] != 0.0


def test_the_coefficient_of_the_penalty_changes_the_update() -> None:
    gentle, strict = Learner(PENALISED), Learner(replace(PENALISED, credit=replace(PENALISED.credit, kl_coef=3.0)))
    for learner in (gentle, strict):
        learner.step(penalised_rows())

    assert not torch.equal(gentle.weights(), strict.weights())


@pytest.mark.parametrize(
    "change",
    [
        {"loss_mode": "gspo"},
        {"loss_mode": "cispo", "clip_ratio_low": 0.0, "clip_ratio_high": 0.0},
        {"kl_loss_type": "mse"},
        {"kl_loss_type": "kl"},
        {"rollout_is": "token"},
        {"rollout_is": "sequence"},
        {"loss_agg_mode": "seq-mean-token-sum-norm", "max_completion_tokens": 7},
        {"adv_estimator": "rloo"},
        {"adv_estimator": "reinforce_plus_plus_baseline"},
        {"adv_estimator": "gae"},
        {"adv_estimator": "reinforce_plus_plus", "gamma": 0.5},
        {"overlong_len": 4, "max_completion_tokens": 7},
    ],
)
def test_every_choice_makes_another_update_that_is_the_same_for_any_micro_batches(change: dict[str, Any]) -> None:
    plain = Learner(make_config(ppo_mini_batch_size=2, weight_decay=0.0, eps=1.0))
    learners = [
        Learner(make_config(ppo_mini_batch_size=2, weight_decay=0.0, eps=1.0, max_token_len=budget, **change))
        for budget in (10_000, 1)
    ]
    for learner in (plain, *learners):
        learner.step(penalised_rows())

    start = Learner(make_config()).weights()
    moved = [learner.weights() - start for learner in (*learners, plain)]
    assert (moved[0] - moved[1]).norm() < 1e-5 * moved[0].norm() + 1e-7
    assert (moved[0] - moved[2]).norm() > 2e-4 * moved[2].norm()
