"""Gradient checkpointing, and the fault of the models' own that it is there to avoid."""

from collections import Counter
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from shared.contracts.training_pass import TrainingPass
from shared.training.checkpointing import checkpointed_layers
from shared.training.errors import InvalidTrainingConfig
from shared.training.forward import completion_logprobs, trained_logits
from tests.unit.functions.learner.builders import gradient_of, ragged_rows, relative_gap, tiny_model


@pytest.mark.parametrize("share_prompts", [True, False])
def test_layers_are_computed_twice_in_eval_mode_and_nothing_else_changes(share_prompts: bool) -> None:
    model, rows = tiny_model(), ragged_rows()
    passes: Counter[int] = Counter()
    for number, layer in enumerate(model.model.layers):
        layer.self_attn.register_forward_hook(lambda *_, number=number: passes.update([number]))

    def run(checkpointing: bool) -> tuple[torch.Tensor, torch.Tensor]:
        model.zero_grad()
        passes.clear()
        config = TrainingPass(enable_gradient_checkpointing=checkpointing)
        with trained_logits(model, share_prompts=share_prompts, config=config) as logits_of:
            logprobs = completion_logprobs(logits_of, rows, 1.0)
            logprobs.square().sum().backward()
        return logprobs.detach(), gradient_of(model)

    logprobs, gradient = run(checkpointing=False)
    assert passes == {0: 1, 1: 1}
    again, recomputed = run(checkpointing=True)
    assert passes == {0: 2, 1: 2}
    assert not model.training
    torch.testing.assert_close(again, logprobs, atol=0, rtol=0)
    torch.testing.assert_close(recomputed, gradient, atol=0, rtol=0)


def test_activations_are_not_kept() -> None:
    model, rows = tiny_model(num_hidden_layers=4), ragged_rows(num_groups=6)

    def kept_bytes(checkpointing: bool) -> int:
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        config = TrainingPass(enable_gradient_checkpointing=checkpointing)
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            trained_logits(model, share_prompts=True, config=config) as logits_of,
        ):
            held = logits_of(rows)
            assert held.requires_grad
        return sum(kept.values())

    assert kept_bytes(checkpointing=True) < 0.5 * kept_bytes(checkpointing=False)


def test_without_a_gradient_nothing_is_prepared_for_one() -> None:
    model, rows = tiny_model(), ragged_rows()
    config = TrainingPass(enable_gradient_checkpointing=True)
    with torch.no_grad(), trained_logits(model, share_prompts=True, config=config) as logits_of:
        assert not logits_of(rows).requires_grad


def test_the_model_is_as_before_even_after_an_error() -> None:
    model = tiny_model()
    names = [set(vars(layer)) for layer in model.model.layers]

    def fail_within() -> None:
        with checkpointed_layers(model):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_within()
    assert [set(vars(layer)) for layer in model.model.layers] == names


def test_a_model_whose_layers_are_not_marked_is_refused() -> None:
    model = tiny_model()
    model.model.layers = torch.nn.ModuleList()
    with pytest.raises(InvalidTrainingConfig, match="enable_gradient_checkpointing"), checkpointed_layers(model):
        pass


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_the_models_own_checkpointing_loses_the_prompt_where_it_lies_in_a_cache() -> None:
    """Why there is no cache in the passes here: completions behind a cached prompt come out as if it was not there."""
    model = tiny_model()
    prompt, completion = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]])

    def logits_behind_cache() -> Any:
        cache = DynamicCache(config=model.config)
        model(prompt, past_key_values=cache, use_cache=True)
        positions = torch.arange(3, 5)[None]
        return model(completion, past_key_values=cache, use_cache=True, position_ids=positions).logits.detach()

    expected = model(torch.cat([prompt, completion], -1)).logits[:, 3:].detach()
    torch.testing.assert_close(logits_behind_cache(), expected, atol=1e-5, rtol=1e-5)
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    model.train()
    assert relative_gap(logits_behind_cache(), expected) > 0.01
