from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch.optim import AdamW
from transformers import PreTrainedModel

from shared.training.errors import DamagedState
from shared.training.optimizer import (
    build_optimizer,
    configure,
    load_optimizer_state,
    optimizer_state_to_blob,
    trainable_parameters,
)
from tests.unit.functions.learner.builders import make_config, tiny_model

CONFIG = make_config(betas=(0.9, 0.98), weight_decay=0.1)


def model_and_optimizer(num_updates: int, **sizes: Any) -> tuple[PreTrainedModel, AdamW]:
    model = tiny_model(**sizes)
    optimizer = build_optimizer(model, CONFIG)
    for number in range(num_updates):
        update(model, optimizer, seed=number)
    return model, optimizer


def update(model: PreTrainedModel, optimizer: AdamW, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("tied", [False, True])
def test_an_update_after_the_round_trip_is_bit_equal_to_one_without(tied: bool) -> None:
    model, optimizer = model_and_optimizer(3, tie_word_embeddings=tied)
    copy, restored = model_and_optimizer(0, tie_word_embeddings=tied)
    copy.load_state_dict(model.state_dict())

    load_optimizer_state(restored, copy, optimizer_state_to_blob(optimizer, model))
    for number in (7, 8):
        update(model, optimizer, number)
        update(copy, restored, number)

    assert torch.equal(weights_of(model), weights_of(copy))
    assert optimizer_state_to_blob(optimizer, model) == optimizer_state_to_blob(restored, copy)


def test_without_the_state_the_update_is_another() -> None:
    model, optimizer = model_and_optimizer(3)
    copy, fresh = model_and_optimizer(0)
    copy.load_state_dict(model.state_dict())

    update(model, optimizer, 7)
    update(copy, fresh, 7)

    assert not torch.allclose(weights_of(model), weights_of(copy), atol=1e-4)


def test_a_fresh_state_makes_the_optimizer_fresh() -> None:
    model, optimizer = model_and_optimizer(2)

    load_optimizer_state(optimizer, model, optimizer_state_to_blob(build_optimizer(model, CONFIG), model))

    assert not optimizer.state


def test_the_blob_holds_both_moments_by_parameter_name_tied_ones_once() -> None:
    model, optimizer = model_and_optimizer(1, tie_word_embeddings=True)

    tensors = load(optimizer_state_to_blob(optimizer, model))

    names = [name for name, _ in model.named_parameters()]
    assert "lm_head.weight" not in names
    assert set(tensors) == {f"{moment}.{name}" for moment in ("exp_avg", "exp_avg_sq") for name in names}
    torch.testing.assert_close(tensors["exp_avg.model.norm.weight"], 0.1 * model.model.norm.weight.grad)


def test_frozen_parameters_are_left_alone() -> None:
    model = tiny_model()
    model.model.embed_tokens.weight.requires_grad_(False)
    optimizer = build_optimizer(model, CONFIG)
    update(model, optimizer, 0)

    names = load(optimizer_state_to_blob(optimizer, model))

    assert "model.embed_tokens.weight" not in trainable_parameters(model)
    assert not any("embed_tokens" in name for name in names)


def test_loading_does_not_tie_the_optimizer_to_the_blob() -> None:
    model, optimizer = model_and_optimizer(1)
    blob = optimizer_state_to_blob(optimizer, model)
    before = bytes(blob)

    load_optimizer_state(optimizer, model, blob)
    update(model, optimizer, 1)

    assert blob == before


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"num_hidden_layers": 1}, "unexpected exp_avg.model.layers.1"),
        ({"num_hidden_layers": 3}, "missing exp_avg.model.layers.2"),
        ({"vocab_size": 24}, r"exp_avg.lm_head.weight is torch.float32 \(23, 32\) instead of torch.float32 \(24, 32\)"),
    ],
)
def test_the_state_of_another_model_is_refused_and_nothing_changes(sizes: dict[str, int], reason: str) -> None:
    model, optimizer = model_and_optimizer(2)
    other, target = model_and_optimizer(1, **sizes)
    before = optimizer_state_to_blob(target, other)

    with pytest.raises(DamagedState, match=reason):
        load_optimizer_state(target, other, optimizer_state_to_blob(optimizer, model))

    assert optimizer_state_to_blob(target, other) == before


def test_the_state_of_another_precision_is_refused() -> None:
    model, optimizer = model_and_optimizer(1)
    other = tiny_model().double()

    with pytest.raises(DamagedState, match="float32"):
        load_optimizer_state(build_optimizer(other, CONFIG), other, optimizer_state_to_blob(optimizer, model))


def test_damaged_bytes_are_refused() -> None:
    model, optimizer = model_and_optimizer(1)

    with pytest.raises(DamagedState, match="no learner state"):
        load_optimizer_state(optimizer, model, optimizer_state_to_blob(optimizer, model)[:-4])


def test_the_update_is_adamw_by_its_formula() -> None:
    model, optimizer = model_and_optimizer(0)
    weight = model.model.norm.weight
    before = weight.detach().double()

    configure(optimizer, CONFIG, lr=0.25)
    update(model, optimizer, 0)

    gradient = weight.grad.double()
    expected = before * (1 - 0.25 * 0.1) - 0.25 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(weight.detach().double(), expected, atol=1e-6, rtol=1e-6)
