"""Other trainers' names: the same meaning, or a refusal with a reason."""

from typing import Any

import pytest

from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid, ConfigProblem

MINIMAL: dict[str, Any] = {
    "model.path": "m",
    "data.train_files": "t.jsonl",
    "reward.rule": "exact_match",
    "trainer.total_epochs": 1,
}


def only_problem(document: dict[str, Any]) -> ConfigProblem:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(MINIMAL | document)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("alias", "value", "key", "canonical"),
    [
        ("num_generations", 4, "rollout.n", 4),
        ("lora_r", 8, "model.lora_rank", 8),
        ("gradient_checkpointing", True, "model.enable_gradient_checkpointing", True),
        ("bf16", True, "model.dtype", "bfloat16"),
        ("bf16", False, "model.dtype", "float32"),
        ("actor_rollout_ref.actor.fsdp_config.dtype", "bf16", "model.dtype", "bfloat16"),
        ("actor_rollout_ref.model.lora_rank", 8, "model.lora_rank", 8),
        ("learning_rate", "3e-5", "actor.optim.lr", 3e-5),
        ("lr_scheduler_type", "constant_with_warmup", "actor.optim.lr_scheduler_type", "constant"),
        ("warmup_steps", 5, "actor.optim.lr_warmup_steps", 5),
        ("adam_epsilon", 1e-6, "actor.optim.eps", 1e-6),
        ("weight_decay", 0, "actor.optim.weight_decay", 0),
        ("max_grad_norm", 0.5, "actor.grad_clip", 0.5),
        ("num_iterations", 2, "actor.ppo_epochs", 2),
        ("epsilon", 0.1, "actor.clip_ratio_low", 0.1),
        ("epsilon", 0.1, "actor.clip_ratio_high", 0.1),
        ("epsilon_high", 0.28, "actor.clip_ratio_high", 0.28),
        ("delta", None, "actor.clip_ratio_c", None),
        ("loss_type", "dapo", "actor.loss_agg_mode", "token-mean"),
        ("loss_type", "grpo", "actor.loss_agg_mode", "seq-mean-token-mean"),
        ("loss_type", "bnpo", "actor.loss_agg_mode", "token-mean"),
        ("loss_type", "dr_grpo", "actor.loss_agg_mode", "seq-mean-token-sum-norm"),
        ("beta", 0.04, "actor.use_kl_loss", True),
        ("beta", "4e-2", "actor.kl_loss_coef", 0.04),
        ("beta", 0, "actor.use_kl_loss", False),
        ("beta", 0.0, "actor.kl_loss_coef", 0.001),
        ("importance_sampling_level", "sequence", "actor.policy_loss.loss_mode", "gspo"),
        ("importance_sampling_level", "token", "actor.policy_loss.loss_mode", "vanilla"),
        ("mask_truncated_completions", True, "algorithm.mask_truncated_completions", True),
        ("vllm_importance_sampling_mode", "sequence_truncate", "algorithm.rollout_correction.rollout_is", "sequence"),
        ("algorithm.filter_groups", True, "algorithm.filter_groups.enable", True),
        ("reward_model.overlong_buffer.enable", True, "algorithm.overlong_buffer.enable", True),
        ("entropy_coef", 0.01, "actor.entropy_coeff", 0.01),
        ("scale_rewards", "group", "algorithm.norm_adv_by_std_in_grpo", True),
        ("scale_rewards", "none", "algorithm.norm_adv_by_std_in_grpo", False),
        ("scale_rewards", False, "algorithm.norm_adv_by_std_in_grpo", False),
        ("max_completion_length", 64, "data.max_response_length", 64),
        ("max_prompt_length", 64, "data.max_prompt_length", 64),
        ("shuffle_dataset", False, "data.shuffle", False),
        ("temperature", 0.7, "rollout.temperature", 0.7),
        ("max_steps", 20, "trainer.total_training_steps", 20),
        ("max_steps", -1, "trainer.total_training_steps", None),
        ("num_train_epochs", 2.0, "trainer.total_epochs", 2),
        ("save_total_limit", 2, "trainer.max_ckpt_to_keep", 2),
        ("seed", 7, "trainer.seed", 7),
        ("data.columns.prompt", "q", "data.prompt_key", "q"),
        ("data.columns.ground_truth", "a", "data.answer_key", "a"),
        ("data.columns.data_source", "s", "data.reward_fn_key", "s"),
        ("data.input_key", "q", "data.prompt_key", "q"),
        ("label_key", "a", "data.answer_key", "a"),
        ("apply_chat_template", True, "data.apply_chat_template", True),
        ("chat_template_kwargs", {"x": 1}, "data.apply_chat_template_kwargs", {"x": 1}),
        ("run_name", "x", "trainer.experiment_name", "x"),
        ("report_to", "wandb", "trainer.logger", ["wandb"]),
        ("report_to", ["tensorboard", "mlflow"], "trainer.logger", ["tensorboard", "mlflow"]),
        ("report_to", "none", "trainer.logger", []),
        ("model_name_or_path", "other", "model.path", "other"),
        ("actor_rollout_ref.rollout.n", 4, "rollout.n", 4),
        ("actor_rollout_ref.rollout.val_kwargs.top_k", 4, "rollout.val_kwargs.top_k", 4),
        ("actor_rollout_ref.model.path", "other", "model.path", "other"),
        ("actor_rollout_ref.actor.optim.clip_grad", 2.0, "actor.grad_clip", 2.0),
        ("trainer.max_actor_ckpt_to_keep", 3, "trainer.max_ckpt_to_keep", 3),
    ],
)
def test_an_alias_sets_its_key(alias: str, value: object, key: str, canonical: object) -> None:
    document = {name: given for name, given in MINIMAL.items() if name not in (key, "trainer.total_epochs")}
    end = {} if key.startswith("trainer.total") and value != -1 else {"trainer.total_epochs": 1}
    end |= {"data.val_files": "v.jsonl"} if "val_kwargs" in key else {}
    node: Any = resolved(load_config(document | end | {alias: value}))
    for part in key.split("."):
        node = node[part]
    assert node == canonical


def test_trls_words_for_the_best_checkpoint_are_known() -> None:
    words = {"metric_for_best_model": "critic/score/mean", "greater_is_better": False, "trainer.keep_best": 2}
    trainer = load_config(MINIMAL | words).trainer
    assert (trainer.best_metric, trainer.best_mode, trainer.keep_best) == ("critic/score/mean", "min", 2)


def test_trls_word_for_a_checkpoint_to_go_on_from_is_known() -> None:
    words = {"resume_from_checkpoint": "there/global_step_3", "trainer.resume_mode": "resume_path"}
    assert load_config(MINIMAL | words).trainer.resume_from_path == "there/global_step_3"


def test_verls_older_place_of_the_reward_function_is_known() -> None:
    document = {name: value for name, value in MINIMAL.items() if name != "reward.rule"}
    config = load_config(document | {"custom_reward_function": {"path": "score.py", "name": "f"}})
    assert config.reward.custom_reward_function.path == "score.py"
    assert config.reward.custom_reward_function.name == "f"


def test_a_key_and_its_alias_may_agree() -> None:
    assert load_config(MINIMAL | {"num_generations": 4, "rollout": {"n": 4}}).rollout.n == 4


@pytest.mark.parametrize(
    "document",
    [
        {"num_generations": 4, "rollout": {"n": 8}},
        {"rollout.n": 4, "actor_rollout_ref": {"rollout": {"n": 8}}},
        {"rollout": {"n": 4}, "rollout.n": 8},
    ],
)
def test_a_key_given_twice_with_different_values_is_refused(document: dict[str, Any]) -> None:
    problem = only_problem(document)
    assert "another value, 4" in problem.reason
    assert problem.suggestion == "give rollout.n once"


@pytest.mark.parametrize("key", ["beta", "actor.use_kl_loss", "algorithm.use_kl_in_reward"])
@pytest.mark.parametrize("value", [0, 0.0, False])
def test_kl_that_is_off_is_what_there_is_anyway(key: str, value: object) -> None:
    assert load_config(MINIMAL | {key: value}) == load_config(MINIMAL)


@pytest.mark.parametrize("value", [None, True, "much", [1]])
def test_a_beta_that_is_no_number_is_refused(value: object) -> None:
    assert "no number" in only_problem({"beta": value}).reason


def test_a_name_for_two_keys_agrees_with_both_or_is_refused() -> None:
    assert load_config(MINIMAL | {"beta": 0.04, "actor.kl_loss_coef": 0.04}).actor.use_kl_loss
    assert "another value, 0.04" in only_problem({"beta": 0.04, "actor.kl_loss_coef": 0.1}).reason
    assert "another value, True" in only_problem({"beta": 0.04, "actor.use_kl_loss": False}).reason


@pytest.mark.parametrize("written", [None, {}])
def test_a_section_that_may_be_a_value_may_be_empty(written: object) -> None:
    assert load_config(MINIMAL | {"algorithm": {"filter_groups": written}}) == load_config(MINIMAL)


@pytest.mark.parametrize(
    ("key", "value", "suggested"),
    [
        ("per_device_train_batch_size", 4, "data.train_batch_size"),
        ("gradient_accumulation_steps", 4, "data.train_batch_size"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 4, "actor.ppo_max_token_len_per_gpu"),
        ("trainer.n_gpus_per_node", 8, "rollout.num_actors"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size", 2, "manifest"),
        ("warmup_ratio", 0.1, "actor.optim.lr_warmup_steps"),
        ("adam_beta2", 0.95, "actor.optim.betas"),
        ("loss_type", "sapo", "dapo"),
        ("loss_type", "cispo", "preset: cispo"),
        ("scale_rewards", "batch", "group"),
        ("importance_sampling_level", "sentence", "token"),
        ("vllm_importance_sampling_mode", "sequence_mask", "token_truncate"),
        ("vllm_importance_sampling_correction", True, "rollout_is"),
        ("algorithm.rollout_correction.rollout_rs", "token_k1", "rollout_is"),
        ("algorithm.filter_groups.metric", "seq_final_reward", "score"),
        ("actor_rollout_ref.actor.loss_scale_factor", 512, "leave it out"),
        ("use_bias_correction_kl", True, "false"),
        ("top_entropy_quantile", 0.2, "1"),
        ("actor_rollout_ref.actor.fsdp_config.model_dtype", "bf16", "rollout.dtype"),
        ("data.truncation", "left", "error"),
        ("dataset_name", "openai/gsm8k", "hf://datasets/"),
        ("dataset_train_split", "train", "data.train_files"),
        ("data.return_raw_chat", "yes", "leave it out"),
        ("actor_rollout_ref.rollout.val_kwargs.do_sample", True, "rollout.val_kwargs.temperature"),
        ("critic.optim.lr", 1e-4, "algorithm.adv_estimator to gae"),
        ("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", 1, "actor.use_kl_loss"),
        ("actor_rollout_ref.ref.log_prob_micro_batch_size", 1, "reference.model.path"),
        ("report_to", "all", "one by one"),
        ("load_best_model_at_end", True, "trainer.keep_best"),
    ],
)
def test_what_has_no_equal_is_refused_with_what_to_use(key: str, value: object, suggested: str) -> None:
    problem = only_problem({key: value})
    assert problem.field == key
    assert suggested in problem.suggestion


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor.use_dynamic_bsz", True),
        ("actor.fsdp_config.model_dtype", "fp32"),
        ("data.truncation", "error"),
        ("importance_sampling_level", "token"),
        ("mask_truncated_completions", False),
        ("algorithm.filter_groups.metric", "acc"),
        ("algorithm.rollout_correction.bypass_mode", False),
    ],
)
def test_saying_what_happens_anyway_is_accepted(key: str, value: object) -> None:
    assert load_config(MINIMAL | {key: value}) == load_config(MINIMAL)


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("rollout.temperture", "rollout.temperature"),
        ("rolout.n", "rollout.n"),
        ("trainer.lr", "actor.optim.lr"),
        ("actor.optim.learning_rate", "actor.optim.lr"),
        ("num_generation", "rollout.n"),
        ("trainer.total_epoch", "trainer.total_epochs"),
        ("actor_rollout_ref.actor.clip_ratio_hi", "actor.clip_ratio_high"),
    ],
)
def test_an_unknown_key_is_refused_with_the_key_that_is_meant(key: str, suggestion: str) -> None:
    problem = only_problem({key: 1})
    assert problem.field == key
    assert problem.reason == "unknown key"
    assert problem.suggestion.startswith(f"did you mean {suggestion}")


def test_a_key_like_no_other_is_refused_with_what_there_is() -> None:
    assert "rollout.num_actors" in only_problem({"rollout.zzz": 1}).suggestion
    assert "the sections are model, data" in only_problem({"zzz": 1}).suggestion


@pytest.mark.parametrize("key", ["hf_token", "trainer.wandb_api_key", "redis_password", "token", "data.aws.secret"])
def test_a_secret_is_refused_and_never_shown(key: str) -> None:
    problem = only_problem({key: "hunter2"})
    assert "no secrets" in problem.reason
    assert "hunter2" not in str(problem)


def test_the_value_of_an_unknown_key_is_never_shown() -> None:
    assert "hunter2" not in str(only_problem({"tokn": "hunter2"}))


def test_columns_are_mapped_by_what_they_hold() -> None:
    columns = {"prompt": "q", "ground_truth": "a", "data_source": "s"}
    data = load_config(MINIMAL | {"data": {"columns": columns}}).data
    assert (data.prompt_key, data.answer_key, data.reward_fn_key) == ("q", "a", "s")
    assert load_config(MINIMAL | {"data": {"columns": None}}) == load_config(MINIMAL)
    assert (
        "data.prompt_key is the same key" in only_problem({"data.prompt_key": "p", "data.columns.prompt": "q"}).reason
    )
    assert "unknown key" in only_problem({"data": {"columns": {"promt": "q"}}}).reason
