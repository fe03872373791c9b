"""From a line of history to what trackers plot. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TRL_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "reward": "critic/score/mean",
        "reward_std": "critic/score/std",
        "kl": "actor/kl_loss",
        "entropy": "actor/entropy",
        "grad_norm": "actor/grad_norm",
        "learning_rate": "actor/lr",
        "loss": "actor/pg_loss",
        "clip_ratio/region_mean": "actor/pg_clipfrac",
        "completions/mean_length": "response_length/mean",
        "completions/min_length": "response_length/min",
        "completions/max_length": "response_length/max",
        "completions/clipped_ratio": "response_length/clip_ratio",
        "sampling/sampling_logp_difference/mean": "training/rollout_logprobs_diff_mean",
        "sampling/sampling_logp_difference/max": "training/rollout_logprobs_diff_max",
        "sampling/importance_sampling_ratio/mean": "rollout_corr/rollout_is_mean",
        "step_time": "timing_s/step",
        "epoch": "training/epoch",
    }
)
"""TRL's names, each with verl's name of the same number. Written beside it, so that either's plots find their curves.

``frac_reward_zero_std`` has one name everywhere."""
COSTS = ("usd", "cpu_seconds", "gpu_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was measured at one moment."""

    kind: str
    """``step`` or ``eval``."""
    step: int
    """Steps finished: the policy version that the step made, or that was evaluated."""
    time: float
    """Unix seconds."""
    metrics: Mapping[str, float]


def point_of(line: Mapping[str, Any]) -> Point | None:
    """The line's point; ``None`` for one that measured nothing."""
    match line["kind"]:
        case "step":
            step, metrics = line["step"] + 1, dict(line["metrics"])
            metrics |= {alias: metrics[name] for alias, name in TRL_NAMES.items() if name in metrics}
            costs = line.get("ledger", {}).values()
            metrics |= {f"cost/{name}": sum(cost[name] for cost in costs) for name in COSTS}
        case "eval":
            step, metrics = line["step"], dict(line.get("metrics", {}))
            metrics |= {"val/accuracy": line["accuracy"], "eval_reward": line["accuracy"]}
        case _:
            return None
    return Point(kind=line["kind"], step=step, time=line["time"], metrics=metrics)
