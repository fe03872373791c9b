"""The learning rate as a pure function of the step, so that no scheduler state has to survive a crash."""

import math

from shared.training.optimizer_config import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int) -> float:
    """Learning rate of all updates of `step` (counted from 0).

    Rises linearly to `lr`, which the last of `warmup_steps` reaches, so that step 0 already learns. Then, with
    p from 0 to 1 over the rest of `total_steps` and m = `min_lr_ratio`: linear `1 − (1 − m)·p`, cosine
    `m + (1 − m)·(1 + cos πp)/2`, both times `lr`. Steps beyond the total keep the lowest rate.
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.lr_schedule == "constant":
        return config.lr
    progress = min(1.0, (step - config.warmup_steps) / (config.total_steps - config.warmup_steps))
    decay = 1.0 - progress if config.lr_schedule == "linear" else (1.0 + math.cos(math.pi * progress)) / 2.0
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * decay)
