"""The plain pass and the shared one against a pass over each sequence by itself."""

import math

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from functions.learner.rows import TrainRow
from shared.training.forward import completion_logprobs, logprobs_and_entropy, trained_logits
from tests.unit.functions.learner.builders import gradient_of, make_row, ragged_rows, relative_gap, tiny_model

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny_model()


def one_by_one(model: PreTrainedModel, rows: list[TrainRow]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logprobs and entropies, one sequence at a time, without padding, packing or caching. [B, T]"""
    shape = (len(rows), max(row.num_tokens for row in rows))
    logprobs, entropies = torch.zeros(shape), torch.zeros(shape)
    for number, row in enumerate(rows):
        token_ids = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))
        predicting = model(input_ids=token_ids[None]).logits[0, row.prompt_token_ids.size - 1 : -1]
        distribution = torch.log_softmax(predicting.float() / TEMPERATURE, -1)
        mask = torch.from_numpy(row.loss_mask)
        chosen = distribution.gather(-1, torch.from_numpy(row.completion_token_ids)[:, None])[:, 0]
        logprobs[number, : row.num_tokens] = torch.where(mask, chosen, 0.0)
        entropies[number, : row.num_tokens] = torch.where(mask, -(distribution.exp() * distribution).sum(-1), 0.0)
    return logprobs, entropies


@pytest.mark.parametrize("share_prompts", [False, True])
def test_logprobs_and_entropies_are_those_of_each_sequence_by_itself(
    model: PreTrainedModel, share_prompts: bool
) -> None:
    rows = ragged_rows()

    with torch.no_grad(), trained_logits(model, share_prompts=share_prompts) as logits_of:
        result = logprobs_and_entropy(logits_of, rows, TEMPERATURE, entropy_gradient=False)

    logprobs, entropies = one_by_one(model, rows)
    torch.testing.assert_close(result.logprobs, logprobs, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(result.entropy, entropies, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("share_prompts", [False, True])
def test_gradients_are_those_of_each_sequence_by_itself(model: PreTrainedModel, share_prompts: bool) -> None:
    rows = ragged_rows(seed=1)
    weights = torch.randn(len(rows), max(row.num_tokens for row in rows))

    model.zero_grad()
    (one_by_one(model, rows)[0] * weights).sum().backward()
    expected = gradient_of(model)
    model.zero_grad()
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        (completion_logprobs(logits_of, rows, TEMPERATURE) * weights).sum().backward()

    assert relative_gap(gradient_of(model), expected) < 1e-5


@pytest.mark.parametrize("share_prompts", [False, True])
def test_a_row_does_not_see_its_neighbours(model: PreTrainedModel, share_prompts: bool) -> None:
    rows = ragged_rows(seed=2)

    with torch.no_grad(), trained_logits(model, share_prompts=share_prompts) as logits_of:
        together = completion_logprobs(logits_of, rows, 1.0)
        for number, row in enumerate(rows):
            alone = completion_logprobs(logits_of, [row], 1.0)[0]
            torch.testing.assert_close(together[number, : row.num_tokens], alone, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("share_prompts", [False, True])
def test_without_a_trained_token_there_is_a_graph_of_zeros(model: PreTrainedModel, share_prompts: bool) -> None:
    rows = [make_row("a", sample, loss_mask=np.zeros(2, bool)) for sample in range(2)]

    model.zero_grad()
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        result = logprobs_and_entropy(logits_of, rows, 1.0, entropy_gradient=True)
        (result.logprobs.sum() + result.entropy.sum()).backward()

    assert not gradient_of(model).any()


@pytest.mark.parametrize("share_prompts", [False, True])
def test_completions_of_one_token_need_only_the_prompt(model: PreTrainedModel, share_prompts: bool) -> None:
    rows = [make_row("a", sample, completion=(sample,)) for sample in range(3)]

    with torch.no_grad(), trained_logits(model, share_prompts=share_prompts) as logits_of:
        result = completion_logprobs(logits_of, rows, TEMPERATURE)

    torch.testing.assert_close(result, one_by_one(model, rows)[0], atol=2e-6, rtol=1e-5)


def test_entropy_has_a_gradient_on_demand_only(model: PreTrainedModel) -> None:
    with trained_logits(model, share_prompts=False) as logits_of:
        asked = logprobs_and_entropy(logits_of, ragged_rows(), 1.0, entropy_gradient=True)
        unasked = logprobs_and_entropy(logits_of, ragged_rows(), 1.0, entropy_gradient=False)

    assert asked.entropy.requires_grad
    assert not unasked.entropy.requires_grad
    assert unasked.logprobs.requires_grad


def test_an_untrained_model_is_near_uniform() -> None:
    flat = tiny_model()
    with torch.no_grad():
        for parameter in flat.parameters():
            parameter.zero_()
        with trained_logits(flat, share_prompts=True) as logits_of:
            result = logprobs_and_entropy(logits_of, [make_row()], 1.0, entropy_gradient=False)

    assert result.logprobs[0].tolist() == pytest.approx([-math.log(23)] * 2)
    assert result.entropy[0].tolist() == pytest.approx([math.log(23)] * 2)
