"""Every tensor of a version reaches the engine, and nothing that was computed with other weights is left in it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load, save
from transformers import PreTrainedModel

from functions.rollout.torch_engine.engine import TorchEngine
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.lora import LoraConfig
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.training.lora import initial_adapter
from tests.unit.functions.rollout.engine_runs import (
    DIRECT,
    GENERIC,
    PARAMS,
    assert_same,
    build,
    drain,
    full_logprobs,
    generate,
    make_requests,
)
from tests.unit.shared.training.test_lora import noisy

REQUESTS = make_requests(num_prompts=3, group_size=1)
"""The second prompt begins like the third."""
SHORT = replace(PARAMS, max_tokens=6)


@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_a_change_of_any_tensor_changes_the_logprobs(family: Callable[[], PreTrainedModel]) -> None:
    engine, model = TorchEngine(build(family)), build(family)
    blob = state_dict_to_blob(model)
    before = [sequence.logprobs for sequence in generate(engine, REQUESTS, SHORT)]
    names = sorted(load(blob))
    assert len(names) > 10
    for name in names:
        tensors = load(blob)
        tensors[name] = tensors[name] + 0.3 * torch.randn(
            tensors[name].shape, generator=torch.Generator().manual_seed(1)
        )
        perturbed = save(tensors)
        load_blob(model, perturbed)
        engine.load(perturbed)
        finished = generate(engine, REQUESTS, SHORT)
        expected = [full_logprobs(model, request, done) for request, done in zip(REQUESTS, finished, strict=True)]
        for sequence, logprobs in zip(finished, expected, strict=True):
            assert sequence.logprobs == pytest.approx(logprobs, abs=2e-5), name
        assert any(
            sequence.logprobs != pytest.approx(old, abs=1e-3) for sequence, old in zip(finished, before, strict=True)
        ), f"{name} is not read"
    engine.load(blob)
    assert [sequence.logprobs for sequence in generate(engine, REQUESTS, SHORT)] == before


def test_a_change_of_any_adapter_matrix_changes_the_logprobs() -> None:
    base = state_dict_to_blob(build())
    adapter = noisy(initial_adapter(build(), LoraConfig(rank=2, alpha=4)))
    engine = TorchEngine(build())
    engine.load(base)
    engine.adapt(encode_adapter(adapter))
    before = [sequence.logprobs for sequence in generate(engine, REQUESTS, SHORT)]
    for name, (_, b) in adapter.matrices.items():
        b += 0.5
        engine.adapt(encode_adapter(adapter))
        changed = [sequence.logprobs for sequence in generate(engine, REQUESTS, SHORT)]
        assert any(new != pytest.approx(old, abs=1e-3) for new, old in zip(changed, before, strict=True)), name
        b -= 0.5


@pytest.mark.parametrize("family", [*DIRECT, *GENERIC])
def test_the_same_prompts_before_and_after_a_load_are_those_of_a_cold_engine(
    family: Callable[[], PreTrainedModel],
) -> None:
    warm, blob = TorchEngine(build(family)), state_dict_to_blob(build(family, seed=1))
    # A group's shared prefix is held while it runs, also by a batch that was broken off.
    generate(warm, REQUESTS)
    warm.add(REQUESTS, PARAMS)
    warm.step()
    warm.abort()
    warm.load(blob)
    cold = TorchEngine(build(family, seed=1))
    assert_same(generate(warm, REQUESTS), generate(cold, REQUESTS))
    warm.add(REQUESTS[:1], PARAMS)
    warm.step()
    warm.add(REQUESTS[1:], PARAMS)
    assert sorted(done.token_ids for done in drain(warm)) == sorted(done.token_ids for done in generate(cold, REQUESTS))
