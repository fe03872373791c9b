"""Whatever a pass saves, its gradient is that of the plain padded pass: every combination, for policy and values."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.critic.value_loss import clipped_value_loss
from functions.critic.value_model import new_value_model
from functions.learner.rows import TrainRow
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.lora import LoraConfig
from shared.contracts.training_pass import TrainingPass
from shared.modeling.logprobs import token_logprobs
from shared.training.batching import pack_micro_batches
from shared.training.forward import scatter_trained, trained_logits, trained_token_logprobs
from shared.training.lora import attach_adapter, initial_adapter
from shared.training.optimizer import trainable_parameters
from shared.training.padding import pad_to_batch
from shared.training.rows import SequenceRow
from tests.unit.functions.learner.builders import make_row, ragged_rows, relative_gap, tiny_model
from tests.unit.shared.training.test_lora import noisy

Terms = Callable[[Tensor, list[SequenceRow]], Tensor]

COMBINATIONS = list(product((True, False), (True, False), (0, 24)))
"""(share prompts, checkpointing, tokens per micro-batch; 0: all at once)"""


def equal_rows() -> list[TrainRow]:
    """Every prompt and completion as long as every other."""
    return [
        make_row(f"row-{group}", sample, (group, 2, 3, 4), [(7 * group + 3 * sample + at) % 20 for at in range(5)])
        for group in range(3)
        for sample in range(3)
    ]


ROWS = {"ragged": lambda: ragged_rows(num_groups=4, group_size=3), "equal": equal_rows}


def adapted(model: PreTrainedModel) -> PreTrainedModel:
    fresh = tiny_model()
    config = LoraConfig(rank=3, alpha=6)
    attach_adapter(model, encode_adapter(noisy(initial_adapter(fresh, config))))
    return model


def policy_terms(outputs: Tensor, rows: list[SequenceRow]) -> Tensor:
    """A loss per row that weighs every token differently, whatever rows it is computed with."""
    logprobs = trained_token_logprobs(outputs, rows, 0.7)
    return scatter_trained(logprobs, rows) * weights_of(rows)


def value_terms(outputs: Tensor, rows: list[SequenceRow]) -> Tensor:
    """The critic's clipped loss."""
    values = scatter_trained(outputs[:, 0].float(), rows)
    mask = pad_to_batch([row.loss_mask for row in rows])
    weights = weights_of(rows)
    return torch.where(mask, clipped_value_loss(values, 0.1 * weights, weights, mask, 0.2).token_loss, 0.0)


def weights_of(rows: list[SequenceRow]) -> Tensor:
    length = max(row.num_tokens for row in rows)
    return torch.stack([torch.cos((1 + row.sample + len(row.row_uid)) * torch.arange(length) + 0.3) for row in rows])


def gradient(
    model: PreTrainedModel,
    rows: list[TrainRow],
    terms: Terms,
    *,
    share_prompts: bool,
    checkpointing: bool,
    max_tokens: int,
) -> Tensor:
    model.zero_grad()
    plan = [list(range(len(rows)))]
    if max_tokens:
        plan = pack_micro_batches(rows, range(len(rows)), max_tokens, share_prompts=share_prompts)
        assert len(plan) > 1
    config = TrainingPass(enable_gradient_checkpointing=checkpointing)
    with trained_logits(model, share_prompts=share_prompts, config=config) as outputs_of:
        for indices in plan:
            part = [rows[index] for index in indices]
            terms(outputs_of(part), part).sum().backward()
    parameters = trainable_parameters(model).values()
    return torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in parameters])


def row_by_row(model: PreTrainedModel, rows: list[TrainRow], terms: Terms) -> Tensor:
    """The reference: each row alone through the model's own forward pass, in float64."""
    model.double().zero_grad()
    for row in rows:
        tokens = torch.tensor([[*row.prompt_token_ids, *row.completion_token_ids]])
        start = row.prompt_token_ids.size - 1
        outputs = model(tokens, use_cache=False).logits[0, start:-1][torch.from_numpy(row.loss_mask)]
        terms(outputs, [row]).sum().backward()
    parameters = trainable_parameters(model).values()
    result = torch.cat([(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in parameters]).clone()
    model.float()
    return result


@pytest.mark.parametrize("raggedness", sorted(ROWS))
@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("kind", ["policy", "values"])
def test_every_combination_gives_the_gradient_of_rows_alone(
    kind: str, lora: bool, raggedness: str, tmp_path: Path
) -> None:
    rows, terms = ROWS[raggedness](), {"policy": policy_terms, "values": value_terms}[kind]
    model = tiny_model()
    if kind == "values":
        model.save_pretrained(tmp_path)
        values = new_value_model(str(tmp_path))
        values.model.load_state_dict(model.model.state_dict())
        torch.nn.init.normal_(values.lm_head.weight, std=0.5, generator=torch.Generator().manual_seed(0))
        torch.nn.init.zeros_(values.lm_head.bias)
        model = values
    if lora:
        adapted(model)
    expected = row_by_row(model, rows, terms)
    assert expected.norm() > 0
    for share_prompts, checkpointing, max_tokens in COMBINATIONS:
        actual = gradient(
            model, rows, terms, share_prompts=share_prompts, checkpointing=checkpointing, max_tokens=max_tokens
        )
        gap = relative_gap(actual, expected)
        assert gap < 1e-5, f"sharing {share_prompts}, checkpointing {checkpointing}, {max_tokens} tokens: {gap}"


@pytest.mark.parametrize("share_prompts", [True, False])
@pytest.mark.parametrize("lora", [True, False])
def test_bfloat16_passes_are_near_and_everything_around_them_is_float32(share_prompts: bool, lora: bool) -> None:
    model, rows = tiny_model(), ragged_rows()
    if lora:
        adapted(model)
    exact = gradient(model, rows, policy_terms, share_prompts=share_prompts, checkpointing=False, max_tokens=0)
    for checkpointing in (False, True):
        model.zero_grad()
        config = TrainingPass(dtype="bfloat16", enable_gradient_checkpointing=checkpointing)
        with trained_logits(model, share_prompts=share_prompts, config=config) as logits_of:
            logits = logits_of(rows)
            assert logits.dtype == torch.bfloat16
            terms = policy_terms(logits, rows)
            assert terms.dtype == torch.float32
            terms.sum().backward()
        parameters = trainable_parameters(model).values()
        assert all(p.dtype == torch.float32 for p in parameters)
        rounded = torch.cat([p.grad.flatten() for p in parameters])
        assert 1e-5 < relative_gap(rounded, exact) < 0.05


def test_the_log_softmax_of_bfloat16_logits_is_that_of_their_float32_values() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)).mul(9).to(torch.bfloat16)
    ids = torch.arange(5)
    expected = logits.double().log_softmax(-1)[torch.arange(5), ids].float()
    torch.testing.assert_close(token_logprobs(logits, ids), expected, atol=1e-6, rtol=1e-6)
