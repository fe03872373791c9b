"""What a tool did in a step, over the calls of all its workers."""

import pytest

from controller.runs.turn_metrics import turn_metrics
from shared.contracts.rollout import RolloutOutputs


def test_means_are_over_completions_not_over_calls() -> None:
    one = RolloutOutputs(num_completions=1, num_tokens=9, num_turns=4, num_tool_calls=3, num_tool_errors=2)
    three = RolloutOutputs(num_completions=3, num_tokens=9, num_turns=4, num_tool_calls=1)
    assert turn_metrics([one, three]) == {
        "num_turns/mean": pytest.approx(2.0),
        "tool_call_counts/mean": pytest.approx(1.0),
        "tool_error_counts/mean": pytest.approx(0.5),
    }


def test_nothing_sampled_has_no_mean() -> None:
    assert turn_metrics([]) == {}
    assert turn_metrics([RolloutOutputs(num_completions=0, num_tokens=0)]) == {}
