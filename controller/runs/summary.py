"""What a run came to, from its history. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.runs.ledger import StageCost, add_ledgers

COST_FIELDS = tuple(StageCost.__dataclass_fields__)


def total_ledger(history: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Cost of the whole run: purpose (init, train, eval) → function → ``StageCost`` fields."""
    totals: dict[str, dict[str, StageCost]] = {}
    for line in history:
        for function, cost in line.get("ledger", {}).items():
            purpose = cost["purpose"]
            added = {function: StageCost(**{name: cost[name] for name in COST_FIELDS})}
            totals[purpose] = add_ledgers(totals.get(purpose, {}), added)
    return {
        purpose: {function: {name: getattr(cost, name) for name in COST_FIELDS} for function, cost in ledger.items()}
        for purpose, ledger in totals.items()
    }


def summarise(history: Sequence[Mapping[str, Any]], *, started_at: float | None) -> dict[str, Any]:
    """The run's result: accuracies, steps, time, ledger and where the newest model lies.

    ``train_s`` counts from the first request to the end of the last step.
    """
    evaluations = [line for line in history if line["kind"] == "eval"]
    steps = [line for line in history if line["kind"] == "step"]
    checkpoints = [line for line in history if line["kind"] == "checkpoint"]
    return {
        "accuracy_before": next((line["accuracy"] for line in evaluations if line["step"] == 0), None),
        "accuracy_after": next((line["accuracy"] for line in reversed(evaluations) if line["step"] > 0), None),
        "steps": len(steps),
        "train_s": steps[-1]["time"] - started_at if steps and started_at is not None else None,
        "ledger": total_ledger(history),
        "checkpoint": checkpoints[-1]["folder"] if checkpoints else None,
    }
