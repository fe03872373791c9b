"""The stages are told what the config says."""

from typing import Any

from controller.runs.config.load import load_config, resolved
from controller.runs.config.run_config import RunConfig
from controller.runs.config.to_wire import (
    algorithm_config,
    eval_sampling,
    multi_turn,
    optim_config,
    reward_spec,
    train_sampling,
)
from shared.contracts.learner import (
    AlgorithmConfig,
    KlLoss,
    KlPenalty,
    OptimConfig,
    OverlongBuffer,
    RolloutCorrection,
)
from shared.contracts.reward import FunctionReward, RuleReward
from shared.contracts.rollout import MultiTurn, Sampling


def config_of(**sections: Any) -> RunConfig:
    minimal = {"model.path": "m", "data.train_files": "t", "trainer.total_training_steps": 9}
    return load_config(minimal | {"reward.rule": "exact_number"} | sections)


def test_optimizer() -> None:
    optim = {
        "lr": 2e-4,
        "lr_scheduler_type": "linear",
        "lr_warmup_steps": 3,
        "min_lr_ratio": 0.1,
        "betas": [0.8, 0.98],
        "eps": 1e-6,
        "weight_decay": 0.2,
    }
    assert optim_config(config_of(actor={"optim": optim, "grad_clip": 0.5}), total_steps=360) == OptimConfig(
        **(optim | {"betas": (0.8, 0.98)}), grad_clip=0.5, total_steps=360
    )


def test_algorithm() -> None:
    actor = {
        "policy_loss": {"loss_mode": "gspo"},
        "clip_ratio": 0.1,
        "clip_ratio_high": 0.28,
        "clip_ratio_c": None,
        "use_kl_loss": True,
        "kl_loss_coef": 0.02,
        "kl_loss_type": "k2",
        "loss_agg_mode": "seq-mean-token-sum",
        "entropy_coeff": 0.01,
        "ppo_epochs": 2,
        "ppo_mini_batch_size": 16,
        "ppo_max_token_len_per_gpu": 2048,
    }
    algorithm = {
        "adv_estimator": "gae",
        "gamma": 0.99,
        "lam": 0.95,
        "use_kl_in_reward": True,
        "kl_penalty": "low_var_kl",
        "kl_ctrl": {"type": "adaptive", "kl_coef": 0.05, "horizon": 5000, "target_kl": 0.2},
        "overlong_buffer": {"enable": True, "len": 40, "penalty_factor": 0.5},
        "mask_truncated_completions": True,
        "filter_groups": {"enable": True, "max_num_gen_batches": 3},
        "rollout_correction": {"rollout_is": "sequence", "rollout_is_threshold": 5.0},
    }
    config = config_of(actor=actor, algorithm=algorithm, max_completion_length=200)
    assert algorithm_config(config) == AlgorithmConfig(
        adv_estimator="gae",
        gamma=0.99,
        lam=0.95,
        kl_in_reward=KlPenalty(
            estimator="low_var_kl", kl_coef=0.05, controller="adaptive", horizon=5000, target_kl=0.2
        ),
        overlong_buffer=OverlongBuffer(len=40, penalty_factor=0.5),
        max_completion_tokens=200,
        mask_truncated_completions=True,
        filter_groups=True,
        loss_mode="gspo",
        clip_ratio_low=0.1,
        clip_ratio_high=0.28,
        clip_ratio_c=None,
        kl_loss=KlLoss(estimator="mse", coef=0.02),
        rollout_correction=RolloutCorrection(level="sequence", threshold=5.0),
        loss_agg_mode="seq-mean-token-sum",
        entropy_coeff=0.01,
        ppo_epochs=2,
        ppo_mini_batch_size=16,
        max_token_len=2048,
    )
    assert not algorithm_config(config_of(scale_rewards="none")).norm_adv_by_std_in_grpo


def test_what_is_not_asked_for_is_not_on_the_wire() -> None:
    plain = algorithm_config(config_of())
    assert plain == AlgorithmConfig(clip_ratio_c=3.0, ppo_mini_batch_size=32, max_completion_tokens=512)


def test_a_null_buffer_is_a_fifth_of_the_longest_completion() -> None:
    buffer = {"algorithm.overlong_buffer.enable": True}
    for longest, length in ((200, 40), (3, 1)):
        wire = algorithm_config(config_of(**buffer, max_completion_length=longest))
        assert wire.overlong_buffer == OverlongBuffer(len=length)


def test_a_null_mini_batch_is_the_whole_batch() -> None:
    assert algorithm_config(config_of(data={"train_files": "t", "train_batch_size": 12})).ppo_mini_batch_size == 12


def test_sampling_of_training_and_evaluation() -> None:
    config = config_of(
        rollout={
            "temperature": 0.9,
            "top_p": 0.95,
            "top_k": 40,
            "min_tokens": 2,
            "stop": ["###", "Q:"],
            "val_kwargs": {"n": 4, "temperature": 0.6, "top_p": 0.8, "top_k": 20},
        },
        max_completion_length=64,
        data={"val_files": "v.jsonl"},
    )
    common = {"min_tokens": 2, "max_tokens": 64, "eos_token_ids": (5, 6), "stop": ("###", "Q:")}
    assert train_sampling(config, [5, 6]) == Sampling(temperature=0.9, top_p=0.95, top_k=40, **common)
    assert eval_sampling(config, [5, 6]) == Sampling(temperature=0.6, top_p=0.8, top_k=20, **common)


def test_ignored_end_tokens_are_ignored_everywhere() -> None:
    config = config_of(rollout={"ignore_eos": True})
    assert train_sampling(config, [5]).ignore_eos
    assert eval_sampling(config, [5]).ignore_eos


def test_one_stop_string_needs_no_list() -> None:
    assert train_sampling(config_of(rollout={"stop": "###"}), [5]).stop == ("###",)


def test_turns() -> None:
    enabled = {"enable": True, "tool": "calculator"}
    assert multi_turn(config_of()) is None
    assert multi_turn(config_of(rollout={"multi_turn": enabled | {"max_turns": 3}})) == MultiTurn(
        tool="calculator", max_turns=3
    )
    unlimited = config_of(rollout={"multi_turn": enabled}, max_completion_length=64)
    assert multi_turn(unlimited) == MultiTurn(tool="calculator", max_turns=64)


def test_top_k_off_is_0_on_the_wire() -> None:
    assert train_sampling(config_of(), [1]).top_k == 0
    assert train_sampling(config_of(top_k=0), [1]).top_k == 0


def test_reward() -> None:
    assert reward_spec(config_of()) == RuleReward(name="exact_number")
    function = {"rule": None, "custom_reward_function": {"path": "score.py"}}
    config = load_config(resolved(config_of()) | {"reward": function})
    assert reward_spec(config) == FunctionReward(path="score.py", name="compute_score")


def test_the_resolved_config_gives_the_same_calls() -> None:
    config = config_of(actor={"clip_ratio_low": 0.1}, learning_rate="1e-5")
    again = load_config(resolved(config))
    assert algorithm_config(again) == algorithm_config(config)
    assert optim_config(again, 9) == optim_config(config, 9)
    assert train_sampling(again, [1]) == train_sampling(config, [1])
