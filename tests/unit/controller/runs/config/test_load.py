"""A document and overrides become one checked config, or the list of everything that is wrong with them."""

import json
from typing import Any

import pytest

from controller.runs.config.aliases import ALIASES
from controller.runs.config.keys import known_keys, nested
from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig

MINIMAL: dict[str, Any] = {
    "model.path": "models/tiny",
    "data.train_files": "train.jsonl",
    "reward.rule": "exact_number",
    "trainer.total_training_steps": 10,
}


def with_keys(**flat: Any) -> dict[str, Any]:
    """The minimal document with more keys, written with `__` for the dots."""
    return MINIMAL | {name.replace("__", "."): value for name, value in flat.items()}


def problems_of(document: dict[str, Any], *overrides: str) -> list[ConfigProblem]:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(document, overrides)
    for problem in caught.value.problems:
        assert problem.field
        assert problem.reason
        assert problem.suggestion
    return list(caught.value.problems)


def only_problem(document: dict[str, Any], *overrides: str) -> ConfigProblem:
    (problem,) = problems_of(document, *overrides)
    return problem


def test_a_minimal_document_takes_the_defaults() -> None:
    config = load_config(MINIMAL)
    assert config.rollout.n == 8
    assert config.actor.optim.lr == 1e-6
    assert config.actor.clip_range == (0.2, 0.2)
    assert config.actor.loss_agg_mode == "token-mean"
    assert config.trainer.seed == config.data_seed == 42
    assert config.data.train_files == ("train.jsonl",)


@pytest.mark.parametrize("dtype", ["auto", "float16", "half", "bf16", 32])
@pytest.mark.parametrize("key", ["rollout.dtype", "model.dtype"])
def test_a_dtype_is_named_and_none_that_needs_a_loss_scale(key: str, dtype: object) -> None:
    problem = only_problem(MINIMAL | {key: dtype})
    assert problem.field == key
    assert "'float32' or 'bfloat16'" in problem.reason
    assert "float32 or bfloat16" in problem.suggestion


def test_nested_sections_dotted_names_and_verls_prefix_are_the_same() -> None:
    lr = {"optim": {"lr": 1e-4}}
    assert (
        load_config(MINIMAL | {"actor": lr})
        == load_config(MINIMAL | {"actor.optim.lr": 1e-4})
        == load_config(MINIMAL | {"actor_rollout_ref": {"actor": lr}})
        == load_config(MINIMAL, ["actor_rollout_ref.actor.optim.lr=1e-4"])
    )


@pytest.mark.parametrize("written", ["1e-4", "1.0e-4", 1e-4, " 1e-4 "])
def test_a_float_may_be_what_yaml_takes_for_text(written: object) -> None:
    assert load_config(with_keys(actor__optim__lr=written)).actor.optim.lr == 1e-4


def test_files_are_one_path_or_a_list() -> None:
    document = with_keys(data__val_files=["a.jsonl", "b.parquet"])
    assert load_config(document).data.val_files == ("a.jsonl", "b.parquet")


def test_an_empty_section_keeps_its_defaults() -> None:
    assert load_config(MINIMAL | {"actor": None, "rollout": {}, "actor_rollout_ref": None}) == load_config(MINIMAL)


def test_overrides_win_over_the_document_under_any_name() -> None:
    document = with_keys(rollout__n=4)
    assert load_config(document, ["rollout.n=16"]).rollout.n == 16
    assert load_config(document, ["num_generations=16"]).rollout.n == 16
    assert load_config(with_keys(num_generations=4), ["rollout.n=16"]).rollout.n == 16


def test_all_problems_are_listed_at_once() -> None:
    document = {
        "model": {"path": 3},
        "rollout": {"n": 1, "temperature": 0, "topp": 0.9},
        "actor": {"grad_clip": "much", "ppo_mini_batch_size": 5},
        "beta": "much",
        "preset": "best",
    }
    fields = [problem.field for problem in problems_of(document, "nonsense", "trainer.seed=-1")]
    assert sorted(fields) == sorted(
        [
            "nonsense",
            "rollout.topp",
            "beta",
            "preset",
            "model.path",
            "data.train_files",
            "actor.grad_clip",
            "trainer.seed",
            "rollout.n",
            "rollout.temperature",
            "actor.ppo_mini_batch_size",
            "trainer.total_training_steps",
            "reward.rule",
        ]
    )


def test_a_rule_is_not_asked_about_a_value_that_is_already_refused() -> None:
    assert only_problem(with_keys(rollout__n="many")).reason.startswith("it should be a valid integer")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rollout.n", True),
        ("rollout.n", 8.5),
        ("rollout.n", None),
        ("actor.optim.lr", True),
        ("actor.optim.lr", float("nan")),
        ("actor.optim.lr", 0),
        ("actor.optim.betas", [0.9]),
        ("actor.optim.betas", [0.9, 1.0]),
        ("actor.optim.lr_scheduler_type", "polynomial"),
        ("actor.loss_agg_mode", "mean"),
        ("critic.loss_agg_mode", "seq-mean-token-sum-norm"),
        ("algorithm.adv_estimator", "remax"),
        ("algorithm.gamma", 1.1),
        ("algorithm.kl_penalty", "abs"),
        ("actor.kl_loss_type", "k4"),
        ("actor.policy_loss.loss_mode", "gpg"),
        ("actor.clip_ratio_low", 1.5),
        ("algorithm.rollout_correction.rollout_is", "turn"),
        ("algorithm.overlong_buffer.len", 0),
        ("data.train_files", []),
        ("data.train_files", [""]),
        ("data.shuffle", "perhaps"),
        ("data.train_batch_size", 0),
        ("rollout.top_p", 0),
        ("rollout.top_k", -2),
        ("rollout.val_kwargs.temperature", -1),
        ("reward.timeout_s", float("inf")),
        ("reward.on_failure", "score_0"),
        ("reward.custom_reward_function.name", "os.system"),
        ("trainer.seed", None),
        ("trainer.experiment_name", "../../etc"),
        ("trainer.max_ckpt_to_keep", 0),
        ("trainer.keep_best", 0),
        ("trainer.best_mode", "most"),
        ("trainer.resume_mode", "always"),
        ("trainer.logger", "swanlab"),
        ("trainer.logger", ["console", "swanlab"]),
    ],
)
def test_a_bad_value_is_refused_with_its_key_and_what_the_key_means(key: str, value: object) -> None:
    problem = next(problem for problem in problems_of(MINIMAL | {key: value}) if problem.field == key)
    assert problem.suggestion.startswith(key)


def test_a_large_bad_value_is_cut_in_the_message() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10_000, ["x"] * 10_000, deep):
        assert len(only_problem(with_keys(rollout__n=value)).reason) < 300
        assert len(only_problem(with_keys(loss_type=value)).reason) < 300


@pytest.mark.parametrize("section", ["actor", "actor.optim", "actor_rollout_ref", "custom_reward_function"])
def test_a_value_for_a_section_is_refused_with_its_keys(section: str) -> None:
    problem = only_problem(MINIMAL | {section: 8})
    assert problem.field == section
    assert f"{section}." in problem.suggestion


def test_a_document_of_any_depth_is_refused_in_words() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"x": deep}
    assert only_problem(MINIMAL | {"rollout": deep}).field.startswith("rollout.x.")


def test_a_document_that_contains_itself_is_refused_in_words() -> None:
    loop: dict[str, Any] = {}
    loop["rollout"] = loop
    assert only_problem(MINIMAL | {"x": loop}).reason == "unknown key"


OTHER: dict[str, Any] = {
    "model.path": "other",
    "model.target_modules": ["q_proj", "v_proj"],
    "model.dtype": "bfloat16",
    "rollout.dtype": "bfloat16",
    "data.train_files": ["other"],
    "data.val_files": ["held-out"],
    "data.prompt_key": "q",
    "data.answer_key": "a",
    "data.reward_fn_key": "s",
    "data.val_split": 0.25,
    "data.apply_chat_template_kwargs": {"enable_thinking": False, "depth": {"x": [1]}},
    "data.system_prompt": "be brief",
    "actor.optim.lr_scheduler_type": "cosine",
    "actor.optim.betas": [0.8, 0.9],
    "actor.loss_agg_mode": "seq-mean-token-mean",
    "actor.ppo_mini_batch_size": 16,
    "actor.clip_ratio_c": 5.0,
    "actor.clip_ratio_low": 0.9,
    "actor.clip_ratio_high": 0.9,
    "actor.clip_ratio": 0.9,
    "actor.policy_loss.loss_mode": "gspo",
    "actor.kl_loss_type": "mse",
    "algorithm.adv_estimator": "rloo",
    "algorithm.gamma": 0.9,
    "algorithm.lam": 0.9,
    "algorithm.kl_penalty": "mse",
    "algorithm.kl_ctrl.type": "adaptive",
    "algorithm.rollout_correction.rollout_is": "sequence",
    "critic.optim.lr_scheduler_type": "cosine",
    "critic.optim.betas": [0.8, 0.9],
    "critic.optim.min_lr_ratio": 0.5,
    "critic.loss_agg_mode": "seq-mean-token-mean",
    "critic.ppo_max_token_len_per_gpu": 2048,
    "reference.log_prob_max_token_len_per_gpu": 2048,
    "rollout.top_p": 0.5,
    "rollout.val_kwargs.top_p": 0.5,
    "rollout.stop": ["###", "Q:"],
    "schedule.assignment": "balanced",
    "schedule.scaling.lambda_": 0.2,
    "schedule.prefill.mode": "disaggregated",
    "schedule.migration.tau": 0.5,
    "schedule.migration.with_kv": "never",
    "rollout.multi_turn.tool": "calculator",
    "reward.rule": "exact_match",
    "reward.custom_reward_function.name": "score",
    "reward.custom_reward_function.module": "my.rewards:score",
    "reward.parts": [
        {"name": "a", "weight": 2.0, "shaping": False, "rule": "math", "parameters": {"precision": 3}}
        | dict.fromkeys(("function", "model", "remote"))
    ],
    "reward.on_failure": "drop_group",
    "trainer.project_name": "p",
    "trainer.experiment_name": "e",
    "trainer.default_local_dir": "d",
    "trainer.best_metric": "critic/score/mean",
    "trainer.best_mode": "min",
    "trainer.resume_mode": "auto",
    "trainer.resume_from_path": "checkpoints/global_step_3",
    "trainer.logger": ["tensorboard", "wandb"],
}
"""A value of each key that is not its default, where one more is none."""
TOGETHER: dict[str, dict[str, Any]] = {
    "actor.optim.min_lr_ratio": {"actor.optim.lr_scheduler_type": "linear"},
    "rollout.val_kwargs.n": {"rollout.val_kwargs.temperature": 1.0, "data.val_files": "held-out"},
    "rollout.multi_turn.enable": {"rollout.multi_turn.tool": "calculator"},
    "rollout.multi_turn.tool": {"rollout.multi_turn.enable": True},
    "rollout.multi_turn.max_assistant_turns": {
        "rollout.multi_turn.enable": True,
        "rollout.multi_turn.tool": "calculator",
    },
    "algorithm.gamma": {"algorithm.adv_estimator": "gae"},
    "algorithm.lam": {"algorithm.adv_estimator": "gae"},
    "algorithm.kl_penalty": {"algorithm.use_kl_in_reward": True},
    "algorithm.kl_ctrl.kl_coef": {"algorithm.use_kl_in_reward": True},
    "algorithm.kl_ctrl.type": {"algorithm.use_kl_in_reward": True},
    "algorithm.kl_ctrl.horizon": {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.type": "adaptive"},
    "algorithm.kl_ctrl.target_kl": {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.type": "adaptive"},
    "actor.kl_loss_coef": {"actor.use_kl_loss": True},
    "actor.kl_loss_type": {"actor.use_kl_loss": True},
    "algorithm.filter_groups.max_num_gen_batches": {"algorithm.filter_groups.enable": True},
    "algorithm.overlong_buffer.len": {"algorithm.overlong_buffer.enable": True},
    "algorithm.overlong_buffer.penalty_factor": {"algorithm.overlong_buffer.enable": True},
    "algorithm.rollout_correction.rollout_is_threshold": {"algorithm.rollout_correction.rollout_is": "token"},
    "critic.optim.min_lr_ratio": {"critic.optim.lr_scheduler_type": "linear"},
    "trainer.test_freq": {"data.val_files": "held-out"},
    "trainer.keep_best": {"data.val_files": "held-out"},
    "trainer.best_metric": {"trainer.keep_best": 1},
    "trainer.best_mode": {"trainer.keep_best": 1, "trainer.best_metric": "critic/score/mean"},
    "trainer.resume_mode": {"trainer.experiment_name": "e"},
    "trainer.resume_from_path": {"trainer.resume_mode": "resume_path"},
    "reward.custom_reward_function.path": {"reward.rule": None},
    "reward.custom_reward_function.module": {"reward.rule": None},
    "reward.parts": {"reward.rule": None},
}
"""What a key needs beside it."""


def test_every_key_reaches_the_config() -> None:
    """Each default is changed alone, and the resolved config changes there."""
    plain = flat(load_config(MINIMAL))
    for name, key in known_keys().items():
        if name in OTHER:
            value = OTHER[name]
        elif key.accepts_bool:
            value = not key.default
        elif key.accepts_text:
            value = "other"
        else:
            value = (key.default or 0) + 1
        changed = flat(load_config(MINIMAL | together(name) | {name: value}))
        assert changed[name] == value != plain[name], name


def together(name: str) -> dict[str, Any]:
    """What the key needs beside it."""
    if name.startswith("critic."):
        return {"algorithm.adv_estimator": "gae", **TOGETHER.get(name, {})}
    if name.startswith("reference."):
        return {"actor.use_kl_loss": True}
    if name.startswith(("rollout.val_kwargs.", "trainer.val_")) or name == "data.val_batch_size":
        return {"data.val_files": "held-out", **TOGETHER.get(name, {})}
    if name in ("model.lora_alpha", "model.target_modules"):
        return {"model.lora_rank": 8}
    return TOGETHER.get(name, {})


def flat(config: RunConfig) -> dict[str, Any]:
    tree = resolved(config)

    def value(name: str) -> Any:
        node: Any = tree
        for part in name.split("."):
            node = node[part]
        return node

    return {name: value(name) for name in known_keys()}


def test_resolved_fills_in_what_null_stands_for() -> None:
    tree = resolved(load_config(with_keys(actor__clip_ratio=0.3, actor__clip_ratio_high=0.4, trainer__seed=7)))
    assert (tree["actor"]["clip_ratio_low"], tree["actor"]["clip_ratio_high"]) == (0.3, 0.4)
    assert tree["actor"]["ppo_mini_batch_size"] == tree["data"]["train_batch_size"]
    assert tree["data"]["seed"] == 7


def test_resolved_is_json_in_a_fixed_order_and_asks_for_the_same_run() -> None:
    tree = resolved(load_config(with_keys(top_k=5, rollout__n=4)))
    shuffled = resolved(load_config(dict(reversed(with_keys(rollout__n=4, top_k=5).items()))))
    assert json.dumps(tree) == json.dumps(shuffled)
    assert list(tree) == list(RunConfig.model_fields)
    assert resolved(load_config(json.loads(json.dumps(tree)))) == tree


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_config(MINIMAL).rollout.n = 3  # type: ignore[misc]  # the assignment is what is tested


def test_every_key_says_what_it_means_and_why_its_default() -> None:
    for name, key in known_keys().items():
        assert key.meaning.endswith("."), name
        if name not in ("rollout.val_kwargs.temperature",) and not key.required:
            assert "Default" in key.meaning, name


def test_nested_is_the_inverse_of_dotted_names() -> None:
    assert nested({"a.b.c": 1, "a.b.d": 2, "e": 3}) == {"a": {"b": {"c": 1, "d": 2}}, "e": 3}


def test_aliases_lead_to_keys_and_are_none_themselves() -> None:
    assert {alias.key for alias in ALIASES.values()} <= set(known_keys())
    assert not set(ALIASES) & set(known_keys())


def test_steps_end_at_the_nearer_of_steps_and_epochs() -> None:
    batch = {"data.train_batch_size": 4}
    assert load_config(MINIMAL | batch).total_steps(num_rows=10) == 10
    epochs = batch | {"trainer.total_training_steps": None}
    assert load_config(MINIMAL | epochs | {"trainer.total_epochs": 2}).total_steps(num_rows=10) == 5
    # 3 x 10 rows need 8 batches of 4: the last one is filled from the fourth epoch.
    assert load_config(MINIMAL | epochs | {"trainer.total_epochs": 3}).total_steps(num_rows=10) == 8
    assert load_config(MINIMAL | batch | {"trainer.total_epochs": 2}).total_steps(num_rows=10) == 5
    assert load_config(MINIMAL | batch | {"trainer.total_epochs": 9}).total_steps(num_rows=10) == 10


def test_a_number_too_long_to_write_is_refused_like_any_other() -> None:
    assert "too long" in only_problem(with_keys(rollout__n=16**5000)).reason


def kwargs_of(document: dict[str, Any], *overrides: str) -> dict[str, Any]:
    return load_config(MINIMAL | document, overrides).data.apply_chat_template_kwargs


@pytest.mark.parametrize(
    "document",
    [
        {"data.apply_chat_template_kwargs": {"enable_thinking": False, "budget": 3}},
        {"data.apply_chat_template_kwargs": {"budget": 3}, "data.apply_chat_template_kwargs.enable_thinking": False},
        {"data.apply_chat_template_kwargs.budget": 3, "data.apply_chat_template_kwargs.enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False, "budget": 3}},
    ],
)
def test_a_mapping_of_the_users_own_names_is_given_whole_or_name_by_name(document: dict[str, Any]) -> None:
    assert kwargs_of(document) == {"enable_thinking": False, "budget": 3}


def test_an_override_changes_one_name_of_a_mapping() -> None:
    document = {"data.apply_chat_template_kwargs": {"enable_thinking": False, "budget": 3}}
    assert kwargs_of(document, "data.apply_chat_template_kwargs.budget=4") == {"enable_thinking": False, "budget": 4}
    assert kwargs_of(document, "data.apply_chat_template_kwargs={budget: 5}") == {"enable_thinking": False, "budget": 5}


def test_a_mapping_that_contradicts_itself_is_refused() -> None:
    key = "data.apply_chat_template_kwargs"
    problem = only_problem(MINIMAL | {key: {"budget": 3}, f"{key}.budget": 4})
    assert problem.suggestion == f"give {key} once"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "dictionary"),
        ({"messages": []}, "messages is not free"),
        ({"add_generation_prompt": False}, "add_generation_prompt is not free"),
    ],
)
def test_what_is_no_variable_of_a_template_is_refused(value: object, words: str) -> None:
    assert words in only_problem(MINIMAL | {"data.apply_chat_template_kwargs": value}).reason


@pytest.mark.parametrize("value", [0, -1, 0.0, 1.0, 1.5, True, "many", [1]])
def test_what_is_no_share_of_the_rows_is_refused(value: object) -> None:
    assert only_problem(MINIMAL | {"data.val_split": value}).field == "data.val_split"


@pytest.mark.parametrize("value", [1, 200, 0.05, "5e-2"])
def test_a_share_is_a_number_of_rows_or_a_part(value: object) -> None:
    assert load_config(MINIMAL | {"data.val_split": value}).data.val_split == float(value)  # type: ignore[arg-type]


def test_what_a_preset_tunes_is_left_out_where_the_user_has_switched_it_off() -> None:
    config = load_config(MINIMAL, ["preset=ppo", "algorithm.use_kl_in_reward=false"])
    assert config.algorithm.adv_estimator == "gae"
    assert config.algorithm.kl_ctrl.kl_coef == load_config(MINIMAL).algorithm.kl_ctrl.kl_coef
    assert resolved(load_config(resolved(config))) == resolved(config)
