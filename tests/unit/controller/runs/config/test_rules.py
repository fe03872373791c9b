"""What must hold between keys."""

from typing import Any

import pytest

from controller.runs.config.keys import known_keys
from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid
from controller.runs.config.rules import RULES, whole_mini_batches

MINIMAL: dict[str, Any] = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_training_steps": 10,
}


def test_rules_are_about_keys() -> None:
    assert {key for rule in RULES for key in rule.keys} <= set(known_keys())


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"rollout.n": 1}, "rollout.n", "group of 1"),
        ({"num_generations": 1}, "num_generations", "group of 1"),
        ({"rollout.temperature": 0}, "rollout.temperature", "only one"),
        ({"rollout.temperature": -0.5}, "rollout.temperature", ""),
        (
            {"data.train_batch_size": 8, "actor.ppo_mini_batch_size": 3},
            "actor.ppo_mini_batch_size",
            "do not divide data.train_batch_size, 8",
        ),
        (
            {"data.train_batch_size": 8, "actor.ppo_mini_batch_size": 16},
            "actor.ppo_mini_batch_size",
            "do not divide",
        ),
        ({"actor.ppo_max_token_len_per_gpu": 1023}, "actor.ppo_max_token_len_per_gpu", "1024 tokens"),
        (
            {"algorithm.adv_estimator": "gae", "critic.ppo_max_token_len_per_gpu": 1023},
            "critic.ppo_max_token_len_per_gpu",
            "1024 tokens",
        ),
        (
            {"actor.use_kl_loss": True, "reference.log_prob_max_token_len_per_gpu": 1023},
            "reference.log_prob_max_token_len_per_gpu",
            "1024 tokens",
        ),
        ({"data.shuffle": False, "data.seed": 1}, "data.seed", "no effect while data.shuffle is false"),
        ({"data.val_batch_size": 4}, "data.val_batch_size", "no held-out rows"),
        ({"trainer.val_success_reward": 0.5}, "trainer.val_success_reward", "no held-out rows"),
        ({"trainer.val_before_train": False}, "trainer.val_before_train", "no held-out rows"),
        ({"rollout.val_kwargs.temperature": 0.5}, "rollout.val_kwargs.temperature", "no held-out rows"),
        ({"rollout.val_kwargs.n": 4}, "rollout.val_kwargs.n", "no held-out rows"),
        ({"rollout.min_tokens": 513}, "rollout.min_tokens", "at most 512"),
        ({"rollout.multi_turn.enable": True}, "rollout.multi_turn.tool", "nothing answers"),
        ({"rollout.multi_turn.tool": "calculator"}, "rollout.multi_turn.tool", "no effect"),
        ({"rollout.multi_turn.max_turns": 3}, "rollout.multi_turn.max_turns", "no effect"),
        ({"rollout.ignore_eos": True, "rollout.stop": "x"}, "rollout.ignore_eos", "rollout.stop ends"),
        (
            {"rollout.ignore_eos": True, "rollout.multi_turn.enable": True, "rollout.multi_turn.tool": "calculator"},
            "rollout.ignore_eos",
            "answers of any length",
        ),
        ({"trainer.total_training_steps": None}, "trainer.total_training_steps", "when the run ends"),
        ({"actor.optim.min_lr_ratio": 0.1}, "actor.optim.min_lr_ratio", "no effect"),
        ({"reward.rule": None}, "reward.rule", "nothing says"),
        ({"reward.custom_reward_function.path": "f.py"}, "reward.rule", "several rewards"),
        ({"trainer.test_freq": 5}, "trainer.test_freq", "no held-out rows"),
        ({"data.val_split": 5, "data.val_files": "v.jsonl"}, "data.val_split", "data.val_files has"),
        (
            {"rollout.val_kwargs.n": 4, "data.val_split": 5},
            "rollout.val_kwargs.n",
            "all 4 completions are the same",
        ),
        ({"trainer.keep_best": 2}, "trainer.keep_best", "there are none"),
        (
            {"trainer.keep_best": 2, "data.val_files": "v", "trainer.save_freq": 4, "trainer.test_freq": 3},
            "trainer.keep_best",
            "only some checkpoints",
        ),
        (
            {"trainer.keep_best": 2, "data.val_files": "v", "trainer.save_freq": 4},
            "trainer.keep_best",
            "only some checkpoints",
        ),
        ({"trainer.best_metric": "actor/entropy"}, "trainer.best_metric", "nothing is compared"),
        ({"trainer.best_mode": "min"}, "trainer.best_metric", "nothing is compared"),
        ({"trainer.resume_mode": "resume_path"}, "trainer.resume_mode", "which checkpoint"),
        ({"trainer.resume_mode": "auto"}, "trainer.resume_mode", "whose checkpoints"),
        ({"trainer.resume_from_path": "c"}, "trainer.resume_from_path", "resume_mode is disable"),
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
        {"rollout.n": 2},
        {"data.train_batch_size": 8, "actor.ppo_mini_batch_size": 4},
        {"actor.ppo_max_token_len_per_gpu": 1024},
        {"algorithm.adv_estimator": "gae", "critic.ppo_max_token_len_per_gpu": 1024},
        {"actor.use_kl_loss": True, "reference.log_prob_max_token_len_per_gpu": 1024},
        {"data.shuffle": False, "data.seed": 42},
        {"data.shuffle": False, "data.seed": 1, "data.val_split": 5},
        {"trainer.val_before_train": True, "trainer.val_success_reward": 1.0, "rollout.val_kwargs.temperature": 0},
        {"trainer.val_before_train": False, "data.val_files": "v.jsonl"},
        {"data.val_batch_size": 4, "data.val_split": 0.5},
        {"rollout.min_tokens": 512},
        {"actor.optim.min_lr_ratio": 0.1, "actor.optim.lr_scheduler_type": "linear"},
        {"trainer.test_freq": 5, "data.val_files": "v.jsonl"},
        {"trainer.test_freq": 5, "data.val_split": 0.1},
        {"trainer.keep_best": 2, "data.val_split": 10},
        {"trainer.test_freq": -1},
        {"rollout.val_kwargs.n": 4, "rollout.val_kwargs.temperature": 1.0, "data.val_files": "v.jsonl"},
        {"trainer.keep_best": 2, "data.val_files": "v", "trainer.save_freq": 4, "trainer.test_freq": 2},
        {"trainer.keep_best": 2, "data.val_files": "v"},
        {"trainer.keep_best": 2, "trainer.best_metric": "critic/score/mean", "trainer.best_mode": "min"},
        {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "c"},
        {"trainer.resume_mode": "auto", "trainer.experiment_name": "e"},
    ],
)
def test_the_edge_of_a_rule_is_accepted(document: dict[str, Any]) -> None:
    config = load_config(MINIMAL | document)
    assert resolved(load_config(resolved(config))) == resolved(config)


@pytest.mark.parametrize(("mini", "batch", "best"), [(3, 8, 2), (16, 8, 8), (5, 7, 1)])
def test_the_suggested_mini_batch_divides(mini: int, batch: int, best: int) -> None:
    broken = whole_mini_batches(mini, batch)
    assert broken is not None
    assert broken.suggestion.startswith(f"use {best},")
