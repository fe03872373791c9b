"""What is said to a remote reward, and how its answer is read. Pure.

Ours is JSON. The request is ``{"samples": [{"prompt", "messages", "completion", "ground_truth", "data_source",
"extra_info"}, ...]}``, the answer ``{"scores": [1.0, null, ...]}`` with a number for each sample, or ``null`` where the
reward does not apply.

The other is the Open Inference Protocol V2 (KServe, Triton, MLServer): texts as BYTES tensors of shape ``[n]``, the
scores as a tensor of n numbers.
"""

import math
from collections.abc import Sequence
from typing import Any

from functions.reward.outcome import Asked, NotApplicable, Outcome, Rewarded
from shared.contracts.errors import InvalidInput
from shared.contracts.reward import RemoteReward, TensorNames


class BadAnswer(ValueError):
    """The answer is not one score for each completion."""


def address_of(reward: RemoteReward) -> str:
    """Where requests are POSTed to."""
    if reward.protocol == "json":
        return reward.url
    return f"{reward.url.rstrip('/')}/v2/models/{reward.model}/infer"


def request_body(reward: RemoteReward, asked: Asked) -> dict[str, Any]:
    """The request for these completions. Raises InvalidInput where a row lacks what has to be sent."""
    if reward.protocol == "json":
        return {"samples": [_sample(prompt, completion.text) for prompt, completion in asked]}
    columns = _tensors(reward.tensors, asked)
    return {
        "inputs": [
            {"name": name, "shape": [len(asked)], "datatype": "BYTES", "data": texts} for name, texts in columns.items()
        ],
        "outputs": [{"name": reward.tensors.score}],
    }


def read_answer(reward: RemoteReward, answer: object, num: int) -> list[Outcome]:
    """One outcome for each of ``num`` completions, in their order. Raises BadAnswer."""
    scores = _scores(answer) if reward.protocol == "json" else _tensor(answer, reward.tensors.score)
    if len(scores) != num:
        raise BadAnswer(f"it has {len(scores)} scores for {num} completions")
    return [_outcome(score, may_be_null=reward.protocol == "json") for score in scores]


def _sample(prompt: Any, completion: str) -> dict[str, Any]:
    return {
        "prompt": prompt.text,
        "messages": prompt.messages,
        "completion": completion,
        "ground_truth": prompt.ground_truth,
        "data_source": prompt.data_source,
        "extra_info": prompt.columns.get("extra_info", prompt.columns),
    }


def _tensors(names: TensorNames, asked: Asked) -> dict[str, list[str]]:
    tensors: dict[str, list[str]] = {}
    if names.prompt is not None:
        tensors[names.prompt] = [prompt.text for prompt, _ in asked]
    if names.completion is not None:
        tensors[names.completion] = [completion.text for _, completion in asked]
    if names.text is not None:
        tensors[names.text] = [prompt.text + completion.text for prompt, completion in asked]
    if names.ground_truth is not None:
        tensors[names.ground_truth] = truths = []
        for prompt, _ in asked:
            if prompt.ground_truth is None:
                raise InvalidInput(f"Row {prompt.row_uid} has no ground truth to send", row_uid=prompt.row_uid)
            truths.append(prompt.ground_truth)
    return tensors


def _scores(answer: object) -> Sequence[object]:
    scores = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(scores, list):
        raise BadAnswer('it is not {"scores": [...]}')
    return scores


def _tensor(answer: object, name: str) -> Sequence[object]:
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    found = [entry for entry in outputs or () if isinstance(entry, dict) and entry.get("name") == name]
    if len(found) != 1 or not isinstance(found[0].get("data"), list):
        raise BadAnswer(f"it has no output tensor {name!r} with its data as JSON")
    data: list[object] = found[0]["data"]
    # Shape [n, 1] may be written as rows.
    return [entry[0] if isinstance(entry, list) and len(entry) == 1 else entry for entry in data]


def _outcome(score: object, *, may_be_null: bool) -> Outcome:
    if score is None and may_be_null:
        return NotApplicable()
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise BadAnswer("a score is not a finite number")
    return Rewarded(reward=float(score))
