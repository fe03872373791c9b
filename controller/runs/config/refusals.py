"""Keys of other trainers that have no equal here: refused with a reason, never ignored.

Some name a behaviour that is fixed here. They are accepted at the one value that says what happens anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a key is refused. ``unless`` holds the values at which it is accepted, without effect."""

    reason: str
    suggestion: str
    unless: tuple[object, ...] = ()


_PROMPTS_PER_STEP = Refusal(
    reason="it counts completions per device, and the number of replicas is not fixed here",
    suggestion="use data.train_batch_size (prompts per step) and actor.ppo_mini_batch_size (prompts per update)",
)
_TOKEN_BUDGET = Refusal(
    reason="micro-batches are packed by tokens, not by rows",
    suggestion="give the tokens of a micro-batch as actor.ppo_max_token_len_per_gpu",
)
_REPLICAS = Refusal(
    reason="replicas come from the plan and from the functions' manifests",
    suggestion="leave it out, or give the replicas of rollout as rollout.num_actors",
)
_ENGINE = Refusal(
    reason="the engine belongs to the rollout function's image",
    suggestion="leave it out and set it in that function's manifest",
)
_TOOLS = Refusal(
    reason="the tools are built in",
    suggestion="leave it out and name a tool as rollout.multi_turn.tool",
    unless=(None,),
)
_WARMUP_STEPS = Refusal(
    reason="the warm-up is given in steps",
    suggestion="use actor.optim.lr_warmup_steps",
)
_BETAS = Refusal(reason="both betas are given together", suggestion="use actor.optim.betas: [beta1, beta2]")

_DATASET_FILES = Refusal(
    reason="datasets are named by their files",
    suggestion="name them in data.train_files and data.val_files: hf://datasets/ORG/NAME/train-*.parquet, or JSONL and "
    "parquet files of your own",
)
_REWARDS = Refusal(
    reason="several rewards are added up by name",
    suggestion="use reward.parts: a list of {name, weight} with one of rule, function, model and remote",
)

_KEYS: Mapping[str, Refusal] = MappingProxyType(
    {
        # loss and advantages
        "actor.loss_scale_factor": Refusal(
            reason="seq-mean-token-sum-norm divides by data.max_response_length",
            suggestion="leave it out",
            unless=(None,),
        ),
        "algorithm.filter_groups.metric": Refusal(
            reason="groups are compared by the rewards as they were scored, before shaping",
            suggestion='set it to "acc" or "score", or leave it out',
            unless=("acc", "score", None),
        ),
        "algorithm.rollout_correction.rollout_rs": Refusal(
            reason="tokens are weighted, never rejected",
            suggestion="leave it out and use algorithm.rollout_correction.rollout_is",
            unless=(None,),
        ),
        "algorithm.rollout_correction.bypass_mode": Refusal(
            reason="ratios compare with the learner's own logprobs",
            suggestion="set it to false or leave it out",
            unless=(False,),
        ),
        "vllm_importance_sampling_correction": Refusal(
            reason="it does not say at which level",
            suggestion="set it to false, or leave it out and set algorithm.rollout_correction.rollout_is",
            unless=(False,),
        ),
        "use_bias_correction_kl": Refusal(
            reason="the KL term has no importance weights",
            suggestion="set it to false; actor.kl_loss_type mse has the gradient of KL(policy‖reference) too",
            unless=(False,),
        ),
        "top_entropy_quantile": Refusal(
            reason="every sampled token is trained", suggestion="set it to 1 or leave it out", unless=(1, 1.0)
        ),
        # batches by rows
        "per_device_train_batch_size": _PROMPTS_PER_STEP,
        "gradient_accumulation_steps": _PROMPTS_PER_STEP,
        "generation_batch_size": _PROMPTS_PER_STEP,
        "steps_per_generation": _PROMPTS_PER_STEP,
        "actor.ppo_micro_batch_size": _TOKEN_BUDGET,
        "actor.ppo_micro_batch_size_per_gpu": _TOKEN_BUDGET,
        "actor.use_dynamic_bsz": Refusal(
            reason=_TOKEN_BUDGET.reason, suggestion="set it to true or leave it out", unless=(True,)
        ),
        # machines and engines
        "trainer.n_gpus_per_node": _REPLICAS,
        "trainer.nnodes": _REPLICAS,
        "rollout.tensor_model_parallel_size": _ENGINE,
        "rollout.gpu_memory_utilization": _ENGINE,
        "rollout.name": _ENGINE,
        "use_vllm": _ENGINE,
        "vllm_mode": _ENGINE,
        # schedule and optimizer
        "actor.optim.lr_warmup_steps_ratio": _WARMUP_STEPS,
        "warmup_ratio": _WARMUP_STEPS,
        "adam_beta1": _BETAS,
        "adam_beta2": _BETAS,
        # sampling
        "rollout.val_kwargs.do_sample": Refusal(
            reason="greedy decoding is temperature 0 here",
            suggestion="leave it out and set rollout.val_kwargs.temperature",
        ),
        "rollout.multi_turn.tool_config_path": _TOOLS,
        "rollout.multi_turn.interaction_config_path": _TOOLS,
        "rollout.multi_turn.max_user_turns": Refusal(
            reason="every turn of the model but the last gets one answer",
            suggestion="leave it out and set rollout.multi_turn.max_assistant_turns",
            unless=(None,),
        ),
        "rollout.multi_turn.max_parallel_calls": Refusal(
            reason="a turn ends with its first call of a tool",
            suggestion="set it to 1 or leave it out",
            unless=(1,),
        ),
        # model
        "use_peft": Refusal(
            reason="LoRA is on where a rank is given",
            suggestion="leave it out; model.lora_rank (lora_r) turns LoRA on, and 0 turns it off",
            unless=(None,),
        ),
        "lora_dropout": Refusal(
            reason="the ratio compares two passes over the same weights, so nothing is dropped in them",
            suggestion="set it to 0 or leave it out",
            unless=(0, 0.0),
        ),
        "fp16": Refusal(
            reason="float16 needs a loss scale", suggestion="set it to false, or use model.dtype", unless=(False,)
        ),
        "actor.fsdp_config.model_dtype": Refusal(
            reason="the weights that are trained are always float32: updates below bfloat16's rounding would be lost",
            suggestion="set it to fp32 or leave it out; passes compute in model.dtype, and what is published is in "
            "rollout.dtype",
            unless=("fp32", "float32"),
        ),
        "model.exclude_modules": Refusal(
            reason="adapted layers are named, not left out",
            suggestion="leave it out and use model.target_modules",
            unless=(None,),
        ),
        "critic.model.enable_gradient_checkpointing": Refusal(
            reason="policy and critic are computed alike",
            suggestion="leave it out and set model.enable_gradient_checkpointing",
        ),
        # data
        "data.truncation": Refusal(
            reason="a prompt is never truncated",
            suggestion='set it to "error" or leave it out; data.filter_overlong_prompts leaves long prompts out',
            unless=("error",),
        ),
        "data.return_raw_chat": Refusal(
            reason="reward functions always get the messages of a prompt",
            suggestion="leave it out",
            unless=(True, False),
        ),
        "dataset_name": _DATASET_FILES,
        "dataset_config": _DATASET_FILES,
        "dataset_train_split": _DATASET_FILES,
        "dataset_test_split": _DATASET_FILES,
        # reward
        "reward_funcs": _REWARDS,
        "reward_weights": _REWARDS,
        # checkpoints
        "load_best_model_at_end": Refusal(
            reason="the policy at a run's end is the one of its last step",
            suggestion="keep the best checkpoints with trainer.keep_best, and export the one you want",
            unless=(False,),
        ),
    }
)

# Sections whose keys are all refused.
_SECTIONS: Mapping[str, Refusal] = MappingProxyType(
    {
        "reward_model": Refusal(
            reason="a reward model is a part of the reward",
            suggestion="use reward.parts: [{name: model, model: {path: ...}}]",
        ),
        "ref": Refusal(
            reason="the reference is a function of its own",
            suggestion="leave it out; reference.model.path names other weights than the policy's first",
        ),
    }
)


def refusal_of(name: str) -> Refusal | None:
    """Why a key without the ``actor_rollout_ref.`` prefix is refused; ``None`` where nothing is known of it."""
    return _SECTIONS.get(name.partition(".")[0]) or _KEYS.get(name)
