"""What the stages are told of a run's config, as their contracts."""

from collections.abc import Sequence

from controller.runs.config.rollout import RolloutConfig, ValidationSampling
from controller.runs.config.run_config import RunConfig
from shared.contracts.learner import AlgorithmConfig, OptimConfig
from shared.contracts.reward import RewardSpec
from shared.contracts.rollout import MultiTurn, Sampling


def optim_config(config: RunConfig, total_steps: int) -> OptimConfig:
    """AdamW and its schedule over the run's ``total_steps`` (see ``RunConfig.total_steps``)."""
    optim = config.actor.optim
    return OptimConfig(
        lr=optim.lr,
        lr_scheduler_type=optim.lr_scheduler_type,
        lr_warmup_steps=optim.lr_warmup_steps,
        min_lr_ratio=optim.min_lr_ratio,
        total_steps=total_steps,
        betas=optim.betas,
        eps=optim.eps,
        weight_decay=optim.weight_decay,
        grad_clip=config.actor.grad_clip,
    )


def algorithm_config(config: RunConfig) -> AlgorithmConfig:
    """From rewards to a loss."""
    actor = config.actor
    low, high = actor.clip_range
    return AlgorithmConfig(
        adv_estimator=config.algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=config.algorithm.norm_adv_by_std_in_grpo,
        filter_groups=config.algorithm.filter_groups,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=actor.clip_ratio_c,
        loss_agg_mode=actor.loss_agg_mode,
        entropy_coeff=actor.entropy_coeff,
        ppo_epochs=actor.ppo_epochs,
        ppo_mini_batch_size=config.mini_batch_size,
        max_token_len=actor.ppo_max_token_len_per_gpu,
    )


def train_sampling(config: RunConfig, eos_ids: Sequence[int]) -> Sampling:
    """How training completions are drawn."""
    return _sampling(config, config.rollout, eos_ids)


def eval_sampling(config: RunConfig, eos_ids: Sequence[int]) -> Sampling:
    """How held-out completions are drawn."""
    return _sampling(config, config.rollout.val_kwargs, eos_ids)


def multi_turn(config: RunConfig) -> MultiTurn | None:
    """What answers the model between its turns, if anything."""
    turns = config.rollout.multi_turn
    if not turns.enable or turns.tool is None:
        return None
    # A turn has a token at least, so the length is a bound on turns too.
    return MultiTurn(tool=turns.tool, max_turns=turns.max_assistant_turns or config.data.max_response_length)


def reward_spec(config: RunConfig) -> RewardSpec:
    """What scores the completions."""
    return config.reward.to_wire()


def _sampling(config: RunConfig, drawn: RolloutConfig | ValidationSampling, eos_ids: Sequence[int]) -> Sampling:
    return Sampling(
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        top_k=max(0, drawn.top_k),
        min_tokens=config.rollout.min_tokens,
        max_tokens=config.data.max_response_length,
        eos_token_ids=tuple(eos_ids),
        ignore_eos=config.rollout.ignore_eos,
        stop=config.rollout.stop,
    )
