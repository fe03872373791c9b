"""Metrics of a batch by verl's names."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from functions.learner.rows import TrainRow


def batch_metrics(rows: Sequence[TrainRow], rewards: Sequence[float], advantages: Tensor) -> dict[str, float]:
    """What the batch looks like before it is trained on. `advantages` `[B, T]`, as the loss uses them.

    A completion's length counts all its tokens; it was clipped if and only if its finish reason says so, for a
    completion may end in its last allowed token by itself.
    """
    trained = np.concatenate(
        [values[: row.num_tokens][row.loss_mask] for row, values in zip(rows, advantages.numpy(), strict=True)]
    )
    prompt_lengths = [row.prompt_token_ids.size for row in rows]
    completion_lengths = [row.num_tokens for row in rows]
    return {
        **_summary("critic/score", rewards),
        **_summary("critic/rewards", rewards),
        **_summary("critic/advantages", trained),
        **_summary("prompt_length", prompt_lengths),
        **_summary("response_length", completion_lengths),
        "response_length/clip_ratio": float(np.mean([row.finish_reason == "length" for row in rows])),
        "perf/total_num_tokens": float(sum(prompt_lengths) + sum(completion_lengths)),
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
