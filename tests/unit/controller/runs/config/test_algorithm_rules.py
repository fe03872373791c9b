"""What must hold between the keys of an algorithm."""

from typing import Any

import pytest

from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid

MINIMAL: dict[str, Any] = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 10,
}
GAE = {"algorithm.adv_estimator": "gae"}
KL_REWARD = {"algorithm.use_kl_in_reward": True}
ADAPTIVE = KL_REWARD | {"algorithm.kl_ctrl.type": "adaptive"}
OVERLONG = {"algorithm.overlong_buffer.enable": True}


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        *(
            ({"rollout.n": 1, "algorithm.adv_estimator": estimator}, "rollout.n", f"{estimator} compares")
            for estimator in ("grpo", "rloo", "reinforce_plus_plus_baseline")
        ),
        (GAE | {"rollout.n": 1, "algorithm.filter_groups": True}, "algorithm.filter_groups", "equal rewards"),
        (
            OVERLONG | {"algorithm.overlong_buffer.len": 513},
            "algorithm.overlong_buffer.len",
            "at most 512 tokens",
        ),
        ({"actor.use_kl_loss": True, "actor.kl_loss_coef": 0}, "actor.use_kl_loss", "no effect"),
        (KL_REWARD | {"algorithm.kl_ctrl.kl_coef": 0}, "algorithm.use_kl_in_reward", "no effect"),
        (ADAPTIVE | {"algorithm.kl_ctrl.horizon": 51}, "algorithm.kl_ctrl.horizon", "256 completions"),
        (
            {"actor.policy_loss.loss_mode": "cispo", "actor.clip_ratio_c": 2.0},
            "actor.clip_ratio_c",
            "cispo has no dual clip",
        ),
        (
            {"actor.clip_ratio": 0.05, "actor.clip_ratio_low": 0.1, "actor.clip_ratio_high": 0.3},
            "actor.clip_ratio",
            "no effect beside actor.clip_ratio_low and actor.clip_ratio_high",
        ),
        (GAE | {"scale_rewards": "none"}, "scale_rewards", "while algorithm.adv_estimator is gae"),
        ({"algorithm.gamma": 0.9}, "algorithm.gamma", "while algorithm.adv_estimator is grpo"),
        (
            {"algorithm.lam": 0.9, "algorithm.adv_estimator": "reinforce_plus_plus"},
            "algorithm.lam",
            "is reinforce_plus_plus",
        ),
        ({"algorithm.kl_penalty": "k3"}, "algorithm.kl_penalty", "while algorithm.use_kl_in_reward is false"),
        ({"algorithm.kl_ctrl.type": "adaptive"}, "algorithm.kl_ctrl.type", "no effect"),
        ({"algorithm.kl_ctrl.kl_coef": 0.1}, "algorithm.kl_ctrl.kl_coef", "no effect"),
        (KL_REWARD | {"algorithm.kl_ctrl.horizon": 500}, "algorithm.kl_ctrl.horizon", "type is fixed"),
        (KL_REWARD | {"algorithm.kl_ctrl.target_kl": 0.2}, "algorithm.kl_ctrl.target_kl", "type is fixed"),
        ({"actor.kl_loss_coef": 0.1}, "actor.kl_loss_coef", "while actor.use_kl_loss is false"),
        ({"actor.kl_loss_type": "mse"}, "actor.kl_loss_type", "no effect"),
        ({"algorithm.overlong_buffer.len": 8}, "algorithm.overlong_buffer.len", "no effect"),
        ({"algorithm.overlong_buffer.penalty_factor": 2}, "algorithm.overlong_buffer.penalty_factor", "no effect"),
        (
            {"algorithm.filter_groups.max_num_gen_batches": 3},
            "algorithm.filter_groups.max_num_gen_batches",
            "enable is false",
        ),
        (
            {"vllm_importance_sampling_clip_max": 5.0},
            "vllm_importance_sampling_clip_max",
            "rollout_is is null",
        ),
    ],
)
def test_a_broken_rule_names_its_key_as_given(document: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(MINIMAL | document)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert words in problem.reason
    assert problem.suggestion


@pytest.mark.parametrize(
    "document",
    [
        GAE | {"rollout.n": 1, "algorithm.gamma": 0.9, "algorithm.lam": 0.9},
        {"rollout.n": 1, "algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.gamma": 0.9},
        OVERLONG | {"algorithm.overlong_buffer.len": 512, "algorithm.overlong_buffer.penalty_factor": 2},
        ADAPTIVE | {"algorithm.kl_ctrl.horizon": 52, "algorithm.kl_ctrl.target_kl": 0.2},
        KL_REWARD | {"algorithm.kl_penalty": "k3", "algorithm.kl_ctrl.kl_coef": 0.1},
        {"actor.use_kl_loss": True, "actor.kl_loss_coef": 0.1, "actor.kl_loss_type": "k1"},
        {"actor.policy_loss.loss_mode": "cispo", "actor.clip_ratio_c": None},
        {"actor.policy_loss.loss_mode": "cispo"},
        {"actor.clip_ratio": 0.05},
        {"actor.clip_ratio": 0.05, "actor.clip_ratio_low": 0.1},
        {"actor.clip_ratio": 0.05, "actor.clip_ratio_high": 0.1},
        {"actor.clip_ratio": 0.2, "actor.clip_ratio_low": 0.1, "actor.clip_ratio_high": 0.3},
        {"algorithm.filter_groups": {"enable": True, "max_num_gen_batches": 3}},
        {"algorithm.rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 5}},
        # What verl's scripts spell out although it is off.
        {"algorithm.kl_ctrl.kl_coef": 0.0, "actor.kl_loss_coef": 0.0, "actor.kl_loss_type": "low_var_kl"},
    ],
)
def test_the_edge_of_a_rule_is_accepted_and_resolves_to_itself(document: dict[str, Any]) -> None:
    config = load_config(MINIMAL | document)
    assert load_config(resolved(config)) == load_config(resolved(load_config(resolved(config))))
