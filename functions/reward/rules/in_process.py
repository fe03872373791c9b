"""A rule as the function that a child process calls: it has a limit there, and can be ended."""

from collections.abc import Callable
from typing import Any

from functions.reward.outcome import NotApplicable
from functions.reward.rules.registry import rule_named
from shared.contracts.reward import RuleReward


def rule_function(reward_json: str) -> Callable[..., dict[str, Any]]:
    """The rule of a ``RuleReward`` in verl's form."""
    reward = RuleReward.model_validate_json(reward_json)
    rule = rule_named(reward.name, reward.parameters)

    def compute_score(solution_str: str, ground_truth: str | None, extra_info: dict[str, Any]) -> dict[str, Any]:
        outcome = rule(solution_str, ground_truth, "", extra_info)
        if isinstance(outcome, NotApplicable):
            return {"score": None}
        return {"score": outcome.reward, "answer": outcome.answer}

    return compute_score
