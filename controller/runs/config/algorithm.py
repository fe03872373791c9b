"""``algorithm``: from rewards to advantages."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from controller.runs.config.section import Section
from shared.contracts.learner import AdvantageEstimator, CorrectionLevel, KlController, KlEstimator

_ESTIMATORS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def _by_verls_name(value: object) -> object:
    return _ESTIMATORS.get(value, value) if isinstance(value, str) else value


Estimator = Annotated[KlEstimator, BeforeValidator(_by_verls_name, json_schema_input_type=KlEstimator | str)]
"""By verl's name, or as k1, k2, k3."""


class KlControlConfig(Section):
    """The coefficient of the KL penalty in the reward, from step to step."""

    type: KlController = "fixed"
    """fixed, or adaptive: it follows the KL to ``target_kl`` (arXiv 1909.08593, section 2.2). Default fixed, as in
    verl."""
    kl_coef: float = Field(ge=0, default=0.001)
    """Coefficient, of an adaptive one the first. Default 0.001, verl's; the preset ppo has 0.05."""
    horizon: int = Field(ge=1, le=10**9, default=10_000)
    """Completions over which an adaptive coefficient changes by the relative error of the KL. Default 10000, verl's."""
    target_kl: float = Field(gt=0, default=0.1)
    """KL per token that an adaptive coefficient steers to. Default 0.1, verl's."""


class FilterGroupsConfig(Section):
    """Groups whose rewards are all equal (DAPO, arXiv 2503.14476, section 3.2)."""

    enable: bool = False
    """Whether they are left out of the update: they have no gradient, yet count in its mean. Compared by the rewards as
    they were scored, before shaping. Default false, as in GRPO."""
    max_num_gen_batches: int = Field(ge=0, le=1000, default=0)
    """Rounds of sampling in which others are drawn in their place (dynamic sampling). Default 0: they are only left
    out."""


class OverlongBufferConfig(Section):
    """DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13). The score itself is reported as it was."""

    enable: bool = False
    """Whether long completions pay before they are compared. Default false."""
    len: int | None = Field(ge=1, le=2**20, default=None)
    """Tokens before ``data.max_response_length`` over which the penalty rises. Default null: a fifth of it, as in
    DAPO."""
    penalty_factor: float = Field(gt=0, default=1.0)
    """What a completion of all allowed tokens pays. Default 1, as in DAPO."""

    def tokens(self, max_response_length: int) -> int:
        """Over which the penalty rises: the given ones, or a fifth of the longest completion."""
        return max(1, max_response_length // 5) if self.len is None else self.len


class RolloutCorrectionConfig(Section):
    """Truncated importance sampling between the engine that sampled and the learner."""

    rollout_is: CorrectionLevel | None = None
    """Weights per token, or per sequence; null for none. Default null, as in verl: with an engine of the learner's own
    numerics they are 1. Every preset has token."""
    rollout_is_threshold: float = Field(gt=0, default=2.0)
    """Cap of the weights. Default 2, verl's."""


class RunAlgorithmConfig(Section):
    """Advantages, and what is done to rewards before."""

    adv_estimator: AdvantageEstimator = "grpo"
    """How advantages are estimated. gae (PPO): by a critic's values; grpo, rloo and reinforce_plus_plus_baseline: a
    completion against its own group; reinforce_plus_plus: against the batch. Default grpo (arXiv 2402.03300)."""
    norm_adv_by_std_in_grpo: bool = True
    """Whether grpo divides advantages by their group's standard deviation. Default true; false is Dr.GRPO
    (arXiv 2503.20783)."""
    gamma: float = Field(ge=0, le=1, default=1.0)
    """Discount per token of gae and reinforce_plus_plus. Default 1: what is rewarded is the whole completion."""
    lam: float = Field(ge=0, le=1, default=1.0)
    """λ of gae: at 1 advantages trust the reward alone, below it the critic too. Default 1, as in verl; the preset ppo
    has 0.95."""
    use_kl_in_reward: bool = False
    """Whether each token pays for its distance from the reference. Default false."""
    kl_penalty: Estimator = "kl"
    """How the distance in the reward is estimated: kl (k1), mse (k2) or low_var_kl (k3). Default kl: exact in the
    mean."""
    kl_ctrl: KlControlConfig = KlControlConfig()
    filter_groups: FilterGroupsConfig = FilterGroupsConfig()
    overlong_buffer: OverlongBufferConfig = OverlongBufferConfig()
    mask_truncated_completions: bool = False
    """Whether completions that were cut at ``data.max_response_length`` are left out of the loss (overlong filtering,
    DAPO section 3.4). They stay in their group's mean and spread, as in TRL. Default false."""
    rollout_correction: RolloutCorrectionConfig = RolloutCorrectionConfig()
