"""Rows and tiny models for the learner's tests."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from functions.learner.advantage.inputs import CreditInputs
from functions.learner.config import LearnerConfig
from functions.learner.credit import trained_tokens
from functions.learner.credit_config import CreditConfig
from functions.learner.loss_config import LossConfig
from functions.learner.rows import TrainRow
from shared.training.padding import pad_to_batch

VOCAB = 23
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def tiny_model(model_type: str = "llama", seed: int = 0, **sizes: Any) -> PreTrainedModel:
    """A random model with logits wide enough for gradients to be far from rounding."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**SIZES, **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def make_row(
    row_uid: str = "a",
    sample: int = 0,
    prompt: Sequence[int] = (1, 2),
    completion: Sequence[int] = (3, 4),
    reward: float | None = 0.0,
    **fields: Any,
) -> TrainRow:
    """A row whose every token is trained, unless fields say otherwise."""
    return TrainRow(
        row_uid=row_uid,
        sample=sample,
        prompt_token_ids=np.array(prompt),
        completion_token_ids=np.array(completion),
        reward=reward,
        **{
            "loss_mask": np.ones(len(completion), bool),
            "rollout_logprobs": np.full(len(completion), -1.0),
            "finish_reason": "stop",
            **fields,
        },
    )


def ragged_rows(
    num_groups: int = 4, group_size: int = 3, max_prompt: int = 6, max_completion: int = 7, seed: int = 0
) -> list[TrainRow]:
    """Groups with lengths, masks, rewards and rollout logprobs at random; each group has its own prompt."""
    rng = np.random.default_rng(seed)
    rows = []
    for group in range(num_groups):
        prompt = rng.integers(0, VOCAB, rng.integers(1, max_prompt + 1))
        for sample in range(group_size):
            length = int(rng.integers(1, max_completion + 1))
            rows.append(
                make_row(
                    f"row-{group}",
                    sample,
                    prompt,
                    rng.integers(0, VOCAB, length),
                    float(rng.normal()),
                    loss_mask=rng.random(length) < 0.8,
                    rollout_logprobs=rng.uniform(-4.0, -2.0, length),
                )
            )
    return rows


def make_config(**flat: Any) -> LearnerConfig:
    """A config whose learning rate is 0.01 unless fields say otherwise; those of its parts are given by name alone."""
    credit = {name: flat.pop(name) for name in names_of(CreditConfig) & flat.keys()}
    # The longest completion is known to both.
    shared = {name: credit[name] for name in names_of(LossConfig) & credit.keys()}
    loss = {name: flat.pop(name) for name in names_of(LossConfig) & flat.keys()}
    return LearnerConfig(**{"lr": 0.01, **flat}, credit=CreditConfig(**credit), loss=LossConfig(**loss, **shared))


def names_of(config: type) -> set[str]:
    """The fields of a dataclass."""
    return {field.name for field in fields(config)}


def credit_inputs(
    rows: Sequence[TrainRow], token_penalties: Any = None, values: Any = None, **config: Any
) -> CreditInputs:
    """What an estimator reads of sorted rows; per-token numbers as nested lists."""
    return CreditInputs(
        rows=rows,
        rewards=[float(row.reward) for row in rows if row.reward is not None],
        token_penalties=None if token_penalties is None else torch.as_tensor(token_penalties, dtype=torch.float64),
        values=None if values is None else torch.as_tensor(values, dtype=torch.float32),
        sampled=pad_to_batch([row.loss_mask for row in rows]),
        trained=trained_tokens(rows, CreditConfig(**config)),
    )


def gradient_of(model: PreTrainedModel) -> torch.Tensor:
    """The gradients of all parameters in a line; 0 for one that has none."""
    return torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in model.parameters()])


def relative_gap(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """‖actual − expected‖ / ‖expected‖ in float64."""
    actual, expected = actual.double(), expected.double()
    return float((actual - expected).norm() / expected.norm())


def with_numbers(rows: Sequence[TrainRow], *names: str, seed: int = 7) -> list[TrainRow]:
    """The rows with per-token numbers at random in these fields, in the range of logprobs."""
    rng = np.random.default_rng(seed)
    return [replace(row, **{name: rng.uniform(-4.0, -2.0, row.num_tokens) for name in names}) for row in rows]
