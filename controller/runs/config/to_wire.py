"""What the stages are told of a run's config, as their contracts."""

from collections.abc import Sequence

from controller.runs.config.algorithm import RunAlgorithmConfig
from controller.runs.config.model_to_wire import training_pass
from controller.runs.config.optim_to_wire import optim_to_wire
from controller.runs.config.rollout import RolloutConfig, ValidationSampling
from controller.runs.config.run_config import RunConfig
from shared.contracts.learner import (
    AlgorithmConfig,
    KlLoss,
    KlPenalty,
    OptimConfig,
    OverlongBuffer,
    RolloutCorrection,
)
from shared.contracts.reward import RewardSpec
from shared.contracts.rollout import MultiTurn, Sampling


def optim_config(config: RunConfig, total_steps: int) -> OptimConfig:
    """The policy's AdamW over the run's ``total_steps``."""
    return optim_to_wire(config.actor.optim, grad_clip=config.actor.grad_clip, total_steps=total_steps)


def algorithm_config(config: RunConfig) -> AlgorithmConfig:
    """From rewards to a loss."""
    actor, algorithm = config.actor, config.algorithm
    low, high = actor.clip_range
    return AlgorithmConfig(
        adv_estimator=algorithm.adv_estimator,
        norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        kl_in_reward=_kl_penalty(algorithm),
        overlong_buffer=_overlong_buffer(config),
        max_completion_tokens=config.data.max_response_length,
        mask_truncated_completions=algorithm.mask_truncated_completions,
        filter_groups=algorithm.filter_groups.enable,
        loss_mode=actor.policy_loss.loss_mode,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=actor.clip_ratio_c,
        kl_loss=KlLoss(estimator=actor.kl_loss_type, coef=actor.kl_loss_coef) if actor.use_kl_loss else None,
        rollout_correction=_rollout_correction(algorithm),
        loss_agg_mode=actor.loss_agg_mode,
        entropy_coeff=actor.entropy_coeff,
        ppo_epochs=actor.ppo_epochs,
        ppo_mini_batch_size=config.mini_batch_size,
        max_token_len=actor.ppo_max_token_len_per_gpu,
        compute=training_pass(config),
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


def _kl_penalty(algorithm: RunAlgorithmConfig) -> KlPenalty | None:
    if not algorithm.use_kl_in_reward:
        return None
    control = algorithm.kl_ctrl
    return KlPenalty(
        estimator=algorithm.kl_penalty,
        kl_coef=control.kl_coef,
        controller=control.type,
        horizon=control.horizon,
        target_kl=control.target_kl,
    )


def _overlong_buffer(config: RunConfig) -> OverlongBuffer | None:
    buffer = config.algorithm.overlong_buffer
    if not buffer.enable:
        return None
    return OverlongBuffer(
        len=config.algorithm.overlong_buffer.tokens(config.data.max_response_length),
        penalty_factor=buffer.penalty_factor,
    )


def _rollout_correction(algorithm: RunAlgorithmConfig) -> RolloutCorrection | None:
    correction = algorithm.rollout_correction
    if correction.rollout_is is None:
        return None
    return RolloutCorrection(level=correction.rollout_is, threshold=correction.rollout_is_threshold)


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
