"""The shared pass against the plain one, for every architecture that may take it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from functions.learner.rows import TrainRow
from shared.training.forward import completion_logprobs, trained_logits
from shared.training.prompt_sharing import (
    VERIFIED_MODEL_TYPES,
    shared_prompt_attention,
    supports_prompt_sharing,
)
from tests.unit.functions.learner.builders import gradient_of, make_row, ragged_rows, relative_gap, tiny_model

FULL_ATTENTION = {"mistral": {"sliding_window": None}, "smollm3": {"no_rope_layers": [1, 0]}}
"""Settings without which an architecture's default would be a window, or would not use its special case."""


def logprobs_and_gradient(
    model: PreTrainedModel, rows: list[TrainRow], *, share_prompts: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    model.zero_grad()
    with trained_logits(model, share_prompts=share_prompts) as logits_of:
        logprobs = completion_logprobs(logits_of, rows, 1.0)
        weights = torch.linspace(-1.0, 1.0, logprobs.numel()).view(logprobs.shape)
        (logprobs * weights).sum().backward()
    return logprobs.detach(), gradient_of(model)


@pytest.mark.parametrize("model_type", sorted(VERIFIED_MODEL_TYPES))
def test_every_supported_architecture_gives_the_plain_result(model_type: str) -> None:
    model = tiny_model(model_type, **FULL_ATTENTION.get(model_type, {}))
    assert supports_prompt_sharing(model)
    rows = ragged_rows(num_groups=3)

    plain_logprobs, plain_gradient = logprobs_and_gradient(model, rows, share_prompts=False)
    logprobs, gradient = logprobs_and_gradient(model, rows, share_prompts=True)

    torch.testing.assert_close(logprobs, plain_logprobs, atol=1e-5, rtol=1e-5)
    assert relative_gap(gradient, plain_gradient) < 1e-5


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), group_size=st.integers(1, 5))
def test_any_raggedness_gives_the_plain_result(seed: int, group_size: int) -> None:
    model = tiny_model(num_hidden_layers=1)
    rows = ragged_rows(num_groups=3, group_size=group_size, seed=seed)

    plain_logprobs, plain_gradient = logprobs_and_gradient(model, rows, share_prompts=False)
    logprobs, gradient = logprobs_and_gradient(model, rows, share_prompts=True)

    torch.testing.assert_close(logprobs, plain_logprobs, atol=1e-5, rtol=1e-5)
    assert relative_gap(gradient, plain_gradient) < 1e-5


def test_long_prompts_and_groups_of_heads_in_a_wide_block() -> None:
    """Sizes at which the attention kernels work in several tiles."""
    model = tiny_model(max_position_embeddings=512, num_key_value_heads=1)
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 23, 200)
    rows = [make_row("a", s, prompt, c := rng.integers(0, 23, 60 + 40 * s), rollout_logprobs=c) for s in range(3)]

    _, plain_gradient = logprobs_and_gradient(model, rows, share_prompts=False)
    _, gradient = logprobs_and_gradient(model, rows, share_prompts=True)

    assert relative_gap(gradient, plain_gradient) < 1e-5


@pytest.mark.parametrize(
    ("model_type", "settings_"),
    [
        ("mistral", {"sliding_window": 4}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}),
        ("gpt_neo", {}),
    ],
)
def test_what_is_not_known_to_be_exact_takes_the_plain_pass(model_type: str, settings_: dict[str, object]) -> None:
    sizes = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 4}
    model = tiny_model(model_type, **(sizes if model_type == "gpt_neo" else {}), **settings_)

    assert not supports_prompt_sharing(model)


def test_the_model_gets_its_attention_back_even_after_an_error() -> None:
    model = tiny_model()
    before = model.config._attn_implementation

    def fail_within() -> None:
        with shared_prompt_attention(model):
            assert model.config._attn_implementation != before
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fail_within()

    assert model.config._attn_implementation == before
