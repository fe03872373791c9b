"""One model that serves many adapters, one after the other."""

import numpy as np
import pytest
import torch
from safetensors.torch import load

from shared.codec.lora_adapter import LoraAdapter, decode_adapter, encode_adapter, merge_adapter
from shared.modeling.errors import WeightsMismatch
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.weights import load_blob, state_dict_to_blob
from tests.unit.functions.learner.builders import tiny_model

LAYERS = ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj")


def adapter_blob(seed: int, layers: tuple[str, ...] = LAYERS, rank: int = 3) -> bytes:
    rng = np.random.default_rng(seed)
    model = tiny_model()
    matrices = {}
    for name in layers:
        rows, columns = model.get_submodule(name).weight.shape
        shapes = ((rank, columns), (rows, rank))
        matrices[name] = tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return encode_adapter(LoraAdapter(rank=rank, alpha=6.0, matrices=matrices))


def test_merged_is_w_plus_scaled_ba() -> None:
    model = tiny_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    MergedWeights(model).merge(blob := adapter_blob(0))
    adapter = decode_adapter(blob)
    for name, tensor in model.state_dict().items():
        layer = name.removesuffix(".weight")
        if layer in LAYERS:
            a, b = (torch.from_numpy(matrix).double() for matrix in adapter.matrices[layer])
            torch.testing.assert_close(tensor.double(), before[name].double() + 2.0 * b @ a, atol=1e-5, rtol=1e-5)
        else:
            assert torch.equal(tensor, before[name])


def test_a_hundred_versions_do_not_drift() -> None:
    model = tiny_model()
    base = state_dict_to_blob(model)
    weights = MergedWeights(model)
    for version in range(100):
        weights.merge(adapter_blob(version))
    last = state_dict_to_blob(model)
    fresh = tiny_model(seed=1)
    load_blob(fresh, base)
    MergedWeights(fresh).merge(adapter_blob(99))
    assert state_dict_to_blob(fresh) == last
    weights.merge(None)
    assert state_dict_to_blob(model) == base


def test_layers_that_the_next_adapter_leaves_alone_are_as_they_were() -> None:
    model = tiny_model()
    weights = MergedWeights(model)
    weights.merge(adapter_blob(0))
    weights.merge(adapter_blob(1, LAYERS[:1]))
    expected = tiny_model()
    MergedWeights(expected).merge(adapter_blob(1, LAYERS[:1]))
    assert state_dict_to_blob(model) == state_dict_to_blob(expected)


def test_other_weights_come_without_an_adapter() -> None:
    model, other = tiny_model(), state_dict_to_blob(tiny_model(seed=5))
    weights = MergedWeights(model)
    weights.merge(adapter_blob(0))
    weights.load(other)
    assert state_dict_to_blob(model) == other
    weights.merge(None)
    assert state_dict_to_blob(model) == other


def test_weights_in_another_dtype_are_refused_with_the_model_untouched() -> None:
    model = tiny_model()
    before = state_dict_to_blob(model)
    with pytest.raises(WeightsMismatch, match=r"bfloat16 instead of torch\.float32"):
        MergedWeights(model).load(state_dict_to_blob(tiny_model(seed=5), torch.bfloat16))
    assert state_dict_to_blob(model) == before


def test_the_merge_without_torch_gives_the_same_weights() -> None:
    model = tiny_model()
    base = state_dict_to_blob(model)
    MergedWeights(model).merge(blob := adapter_blob(0))
    merged = load(bytes(merge_adapter(base, decode_adapter(blob))))
    for name, tensor in load(state_dict_to_blob(model)).items():
        torch.testing.assert_close(merged[name], tensor, atol=1e-6, rtol=1e-6)


def test_bfloat16_weights_are_merged_in_float32() -> None:
    exact, rounded = tiny_model(), tiny_model().to(torch.bfloat16)
    load_blob(exact, state_dict_to_blob(rounded))
    for model in (exact, rounded):
        MergedWeights(model).merge(adapter_blob(0))
    for name, tensor in exact.state_dict().items():
        assert torch.equal(rounded.state_dict()[name], tensor.to(torch.bfloat16))


@pytest.mark.parametrize("blob", [b"nothing", adapter_blob(0, ("model.layers.0.mlp.up_proj",))[:-4]])
def test_a_damaged_adapter_is_refused_with_the_model_untouched(blob: bytes) -> None:
    model = tiny_model()
    weights = MergedWeights(model)
    weights.merge(adapter_blob(0))
    before = state_dict_to_blob(model)
    with pytest.raises(WeightsMismatch, match="cannot be read"):
        weights.merge(blob)
    assert state_dict_to_blob(model) == before


def test_an_adapter_of_another_model_is_refused_with_the_model_untouched() -> None:
    model = tiny_model(num_hidden_layers=1)
    before = state_dict_to_blob(model)
    with pytest.raises(WeightsMismatch, match=r"layers\.1"):
        MergedWeights(model).merge(adapter_blob(0))
    assert state_dict_to_blob(model) == before
