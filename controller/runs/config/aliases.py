"""Other spellings of the canonical keys: verl's ``actor_rollout_ref.`` prefix and TRL's flat names.

Only names that mean exactly the same are here; the rest of what people paste is in ``refusals``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controller.runs.config.problems import shown

VERL_PREFIX = "actor_rollout_ref."
"""verl groups ``model``, ``actor`` and ``rollout`` under this; here they stand at the top."""


class NoEquivalent(ValueError):
    """The value has no equal under the canonical key."""

    def __init__(self, reason: str, suggestion: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.suggestion = suggestion


def _same(value: object) -> object:
    return value


def _nothing_else(value: object) -> Mapping[str, object]:
    return {}


def _loss_type(value: object) -> object:
    # TRL's bnpo is a mean over the tokens of a micro-batch; here no micro-batch has a mean of its own.
    modes = {
        "grpo": "seq-mean-token-mean",
        "dapo": "token-mean",
        "bnpo": "token-mean",
        "dr_grpo": "seq-mean-token-sum-norm",
    }
    if isinstance(value, str) and value in modes:
        return modes[value]
    if value == "cispo":
        raise NoEquivalent("loss_type cispo is a policy loss here", "use preset: cispo, or actor.policy_loss.loss_mode")
    raise NoEquivalent(
        f"loss_type {shown(value)} has no exact equal here",
        'use "dapo" (every token weighs the same), "grpo" (every completion weighs the same) or "dr_grpo"',
    )


def _weight(value: object) -> float:
    try:
        if value is True:
            raise ValueError("not a weight")
        return float(value)  # type: ignore[arg-type]  # what is no number is the error that is caught
    except (TypeError, ValueError) as error:
        raise NoEquivalent(f"beta {shown(value)} is no number", "give the KL coefficient, or 0 for none") from error


def _has_weight(value: object) -> object:
    return _weight(value) != 0.0


def _kl_coefficient(value: object) -> Mapping[str, object]:
    return {"actor.kl_loss_coef": value} if _weight(value) != 0.0 else {}


def _loss_mode(value: object) -> object:
    modes = {"token": "vanilla", "sequence": "gspo"}
    if isinstance(value, str) and value in modes:
        return modes[value]
    raise NoEquivalent(f"importance_sampling_level {shown(value)} is not known", 'use "token" or "sequence"')


def _correction(value: object) -> object:
    levels = {"token_truncate": "token", "sequence_truncate": "sequence"}
    if isinstance(value, str) and value in levels:
        return levels[value]
    raise NoEquivalent(
        f"vllm_importance_sampling_mode {shown(value)} has no exact equal here: weights are capped, never dropped",
        'use "token_truncate" or "sequence_truncate"',
    )


def _scheduler(value: object) -> object:
    # A warm-up length is its own key here, and applies to every schedule.
    return "constant" if value == "constant_with_warmup" else value


def _scale_rewards(value: object) -> object:
    scales = {"group": True, "none": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in scales:
        return scales[value]
    raise NoEquivalent(
        f"scale_rewards {shown(value)} has no exact equal here",
        'use "group" (divide by the group\'s standard deviation) or "none"',
    )


def _bf16(value: object) -> object:
    return {True: "bfloat16", False: "float32"}[value] if isinstance(value, bool) else value


def _dtype(value: object) -> object:
    short = {"bf16": "bfloat16", "fp32": "float32"}
    return short.get(value, value) if isinstance(value, str) else value


def _no_limit(value: object) -> object:
    return None if value == -1 else value


def _report_to(value: object) -> object:
    if value in (None, "none"):
        return []
    if value == "all":
        raise NoEquivalent('report_to "all" depends on what is installed', "name the trackers one by one")
    return value


def _greater_is_better(value: object) -> object:
    return {True: "max", False: "min"}[value] if isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class Alias:
    """The canonical key that a name stands for, and how its value reads there (raises ``NoEquivalent``)."""

    key: str
    convert: Callable[[object], object] = _same
    also: Callable[[object], Mapping[str, object]] = _nothing_else
    """Values of further canonical keys, where one name says two things."""


ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        # TRL: model and data
        "model_name_or_path": Alias("model.path"),
        "max_prompt_length": Alias("data.max_prompt_length"),
        "max_completion_length": Alias("data.max_response_length"),
        "shuffle_dataset": Alias("data.shuffle"),
        "data_seed": Alias("data.seed"),
        "chat_template_kwargs": Alias("data.apply_chat_template_kwargs"),
        # columns by what they hold; by OpenRLHF's and slime's names
        "data.columns.prompt": Alias("data.prompt_key"),
        "data.columns.ground_truth": Alias("data.answer_key"),
        "data.columns.data_source": Alias("data.reward_fn_key"),
        **{name: Alias("data.prompt_key") for name in ("data.input_key", "input_key")},
        **{name: Alias("data.answer_key") for name in ("data.label_key", "label_key")},
        "apply_chat_template": Alias("data.apply_chat_template"),
        # verl: the reference
        "ref.model.path": Alias("reference.model.path"),
        "ref.log_prob_max_token_len_per_gpu": Alias("reference.log_prob_max_token_len_per_gpu"),
        # TRL: model; verl's other place of its precision
        "lora_r": Alias("model.lora_rank"),
        "lora_alpha": Alias("model.lora_alpha"),
        "lora_target_modules": Alias("model.target_modules"),
        "gradient_checkpointing": Alias("model.enable_gradient_checkpointing"),
        "bf16": Alias("model.dtype", _bf16),
        "actor.fsdp_config.dtype": Alias("model.dtype", _dtype),
        # TRL: update
        "learning_rate": Alias("actor.optim.lr"),
        "lr_scheduler_type": Alias("actor.optim.lr_scheduler_type", _scheduler),
        "warmup_steps": Alias("actor.optim.lr_warmup_steps"),
        "adam_epsilon": Alias("actor.optim.eps"),
        "weight_decay": Alias("actor.optim.weight_decay"),
        "max_grad_norm": Alias("actor.grad_clip"),
        "num_iterations": Alias("actor.ppo_epochs"),
        "epsilon": Alias("actor.clip_ratio"),
        "epsilon_high": Alias("actor.clip_ratio_high"),
        "delta": Alias("actor.clip_ratio_c"),
        "loss_type": Alias("actor.loss_agg_mode", _loss_type),
        "beta": Alias("actor.use_kl_loss", _has_weight, also=_kl_coefficient),
        "importance_sampling_level": Alias("actor.policy_loss.loss_mode", _loss_mode),
        "mask_truncated_completions": Alias("algorithm.mask_truncated_completions"),
        "vllm_importance_sampling_mode": Alias("algorithm.rollout_correction.rollout_is", _correction),
        "vllm_importance_sampling_clip_max": Alias("algorithm.rollout_correction.rollout_is_threshold"),
        "entropy_coef": Alias("actor.entropy_coeff"),
        "scale_rewards": Alias("algorithm.norm_adv_by_std_in_grpo", _scale_rewards),
        # TRL: sampling
        "num_generations": Alias("rollout.n"),
        "num_generations_eval": Alias("rollout.val_kwargs.n"),
        "temperature": Alias("rollout.temperature"),
        "top_p": Alias("rollout.top_p"),
        "top_k": Alias("rollout.top_k"),
        # TRL: run
        "max_steps": Alias("trainer.total_training_steps", _no_limit),
        "num_train_epochs": Alias("trainer.total_epochs"),
        "save_steps": Alias("trainer.save_freq"),
        "save_total_limit": Alias("trainer.max_ckpt_to_keep"),
        "eval_steps": Alias("trainer.test_freq"),
        "metric_for_best_model": Alias("trainer.best_metric"),
        "greater_is_better": Alias("trainer.best_mode", _greater_is_better),
        "resume_from_checkpoint": Alias("trainer.resume_from_path"),
        "report_to": Alias("trainer.logger", _report_to),
        "seed": Alias("trainer.seed"),
        "run_name": Alias("trainer.experiment_name"),
        "output_dir": Alias("trainer.default_local_dir"),
        # A word that Python keeps for itself
        "schedule.scaling.lambda": Alias("schedule.scaling.lambda_"),
        # A section's first key, as the section's own value
        "algorithm.filter_groups": Alias("algorithm.filter_groups.enable"),
        # verl: other places of the same key
        **{
            f"{place}.{name}": Alias(f"algorithm.overlong_buffer.{name}")
            for place in ("reward_model.overlong_buffer", "reward.reward_kwargs.overlong_buffer_cfg")
            for name in ("enable", "len", "penalty_factor")
        },
        "actor.optim.clip_grad": Alias("actor.grad_clip"),
        "custom_reward_function.path": Alias("reward.custom_reward_function.path"),
        "custom_reward_function.name": Alias("reward.custom_reward_function.name"),
        "trainer.max_actor_ckpt_to_keep": Alias("trainer.max_ckpt_to_keep"),
        "rollout.multi_turn.max_turns": Alias("rollout.multi_turn.max_assistant_turns"),
    }
)


def without_prefix(name: str) -> str:
    """The name as it stands here: ``actor_rollout_ref.rollout.n`` → ``rollout.n``."""
    return name.removeprefix(VERL_PREFIX)
