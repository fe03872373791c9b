"""Metrics of a batch by verl's names."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from functions.learner.rows import TrainRow


def batch_metrics(rows: Sequence[TrainRow], scores: Sequence[float]) -> dict[str, float]:
    """What was sampled and how it was scored.

    A completion's length counts all its tokens; it was clipped if and only if its finish reason says so, for a
    completion may end in its last allowed token by itself.
    """
    prompt_lengths = [row.prompt_token_ids.size for row in rows]
    completion_lengths = [row.num_tokens for row in rows]
    return {
        **_summary("critic/score", scores),
        **_summary("prompt_length", prompt_lengths),
        **_summary("response_length", completion_lengths),
        "response_length/clip_ratio": float(np.mean([row.is_truncated for row in rows])),
        "perf/total_num_tokens": float(sum(prompt_lengths) + sum(completion_lengths)),
    }


def reward_metrics(rewards: Sequence[float], advantages: Tensor) -> dict[str, float]:
    """What was made of the scores: rewards after shaping and penalties; advantages of the tokens in the loss. [M]"""
    return {**_summary("critic/rewards", rewards), **_summary("critic/advantages", advantages.numpy())}


def critic_metrics(values: Tensor, returns: Tensor) -> dict[str, float]:
    """What the critic said and what came of it, both of all sampled tokens. [M]

    The explained variance is `1 − var(returns − values) / var(returns)`: 1 for a critic that knows, 0 for a constant.
    """
    said, came = values.double().numpy(), returns.double().numpy()
    spread = float(came.var()) if came.size else 0.0
    return {
        **_summary("critic/values", said),
        **_summary("critic/returns", came),
        "critic/vf_explained_var": 1.0 - float((came - said).var()) / spread if spread > 0.0 else 0.0,
    }


def _summary(name: str, values: Sequence[float] | np.ndarray) -> dict[str, float]:
    array = np.asarray(values, dtype=np.float64)
    if not array.size:
        return {f"{name}/{statistic}": 0.0 for statistic in ("mean", "max", "min")}
    return {
        f"{name}/mean": float(array.mean()),
        f"{name}/max": float(array.max()),
        f"{name}/min": float(array.min()),
    }
