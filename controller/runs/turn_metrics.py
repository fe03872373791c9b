"""What a tool did in one step. Pure."""

from collections.abc import Sequence

from shared.contracts.rollout import RolloutOutputs


def turn_metrics(outputs: Sequence[RolloutOutputs]) -> dict[str, float]:
    """Means over all completions, under verl's names: turns of the model, answers, and answers that tell of a mistake.

    ``{}`` if there was no completion.
    """
    num_completions = sum(output.num_completions for output in outputs)
    if not num_completions:
        return {}
    return {
        "num_turns/mean": sum(output.num_turns for output in outputs) / num_completions,
        "tool_call_counts/mean": sum(output.num_tool_calls for output in outputs) / num_completions,
        "tool_error_counts/mean": sum(output.num_tool_errors for output in outputs) / num_completions,
    }
