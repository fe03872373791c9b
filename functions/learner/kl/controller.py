"""The coefficient of the KL penalty from step to step. A value in, a value out: its only state is in the run's head."""

from functions.learner.credit_config import CreditConfig
from shared.training.optimizer_config import require

MAX_ERROR = 0.2
"""Bound of the relative error, so that one odd batch changes little."""


def next_kl_coef(config: CreditConfig, kl: float, num_completions: int) -> float:
    """The coefficient of the next step, after a step of so many completions with this KL per token.

    Fixed: the same. Adaptive (Ziegler et al., arXiv 1909.08593, section 2.2, with the step as verl and TRL have it):
    `β·(1 + e·n / horizon)`, `e = clip(kl / target − 1, ±0.2)`. Raises InvalidTrainingConfig where a single step would
    take it to 0 or below.
    """
    if config.kl_controller == "fixed":
        return config.kl_coef
    require(
        MAX_ERROR * num_completions < config.kl_horizon,
        f"kl_ctrl.horizon must exceed {MAX_ERROR:g} times a step's {num_completions} completions",
    )
    error = min(max(kl / config.kl_target - 1.0, -MAX_ERROR), MAX_ERROR)
    return config.kl_coef * (1.0 + error * num_completions / config.kl_horizon)
