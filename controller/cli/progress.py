"""What a follower of a run is shown: a pure view, made of the run's events one after another."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

LATEST_WEIGHT = 0.2
"""Weight of the latest step in the mean step time: it follows growing completions, but not every hiccup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """Where a run stands. ``None`` is what was not heard of yet."""

    state: str = "queued"
    reason: str | None = None
    phase: str = ""
    num_steps: int = 0
    """Steps finished."""
    total_steps: int | None = None
    reward_mean: float | None = None
    completion_tokens: float | None = None
    """Mean length of the latest step's completions."""
    mean_step_s: float | None = None
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Ready replicas by function."""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    """At the latest evaluation of a trained policy."""
    checkpoint: str | None = None

    @property
    def time_left_s(self) -> float | None:
        """Time that the steps to come take at the pace of the latest ones."""
        if self.total_steps is None or self.mean_step_s is None:
            return None
        return max(0, self.total_steps - self.num_steps) * self.mean_step_s

    def after(self, kind: str, data: Mapping[str, Any]) -> "ProgressView":
        """The view once the event has happened. Kinds and fields that are not known change nothing."""
        match kind:
            case "state":
                return replace(self, state=str(data.get("state")), reason=data.get("reason"), phase="")
            case "progress":
                total = data.get("total_steps", self.total_steps)
                return replace(self, phase=str(data.get("phase", "")), total_steps=total)
            case "step":
                return self._after_step(data)
            case "eval" if data.get("step") == 0:
                return replace(self, accuracy_before=data.get("accuracy"))
            case "eval":
                return replace(self, accuracy_after=data.get("accuracy"))
            case "checkpoint":
                return replace(self, checkpoint=data.get("folder"))
        return self

    def _after_step(self, data: Mapping[str, Any]) -> "ProgressView":
        metrics = data.get("metrics") or {}
        step_s, mean_s = metrics.get("timing_s/step"), self.mean_step_s
        if step_s is not None:
            mean_s = step_s if mean_s is None else mean_s + LATEST_WEIGHT * (step_s - mean_s)
        return replace(
            self,
            # Steps count from 0, so that many were finished before this one.
            num_steps=data["step"] + 1,
            total_steps=data.get("total_steps", self.total_steps),
            reward_mean=metrics.get("critic/score/mean"),
            completion_tokens=metrics.get("response_length/mean"),
            mean_step_s=mean_s,
            replicas=data.get("replicas") or self.replicas,
        )
