"""Weights blobs: deterministic bytes, tied tensors once, strict loading, and the digest."""

import hashlib

import pytest
import torch
from safetensors.torch import load, save
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from shared.modeling.digest import weights_digest
from shared.modeling.errors import WeightsMismatch
from shared.modeling.weights import load_blob, state_dict_to_blob


def _llama(*, tied: bool = True, seed: int = 0, **overrides: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**(sizes | {"vocab_size": 20} | overrides), tie_word_embeddings=tied)
    return LlamaForCausalLM(config).eval()


def _gpt2(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    special = {"bos_token_id": 0, "eos_token_id": 1}
    return GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=20, **special)).eval()


def _logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(12)[None]).logits


def test_equal_weights_give_equal_bytes_and_digest() -> None:
    blob = state_dict_to_blob(_llama())
    assert state_dict_to_blob(_llama()) == blob
    assert weights_digest(blob) == hashlib.sha256(blob).hexdigest()
    assert weights_digest(state_dict_to_blob(_llama(seed=1))) != weights_digest(blob)


@pytest.mark.parametrize("build", [_llama, _gpt2])
def test_a_loaded_model_computes_the_same(build) -> None:
    source, target = build(seed=0), build(seed=1)
    load_blob(target, state_dict_to_blob(source))
    assert torch.equal(_logits(target), _logits(source))
    assert target.lm_head.weight is target.get_input_embeddings().weight


def test_tied_tensors_are_stored_once_and_untied_ones_twice() -> None:
    tied, untied = load(state_dict_to_blob(_llama())), load(state_dict_to_blob(_llama(tied=False)))
    assert untied.keys() - tied.keys() == {"lm_head.weight"}
    assert "model.embed_tokens.weight" in tied


def test_a_tied_name_in_the_blob_is_accepted() -> None:
    model = _llama()
    tensors = load(state_dict_to_blob(model))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    load_blob(_llama(seed=1), save(tensors))


def test_parameters_are_kept_in_place() -> None:
    model = _llama()
    before = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    load_blob(model, state_dict_to_blob(_llama(seed=1)))
    assert {name: parameter.data_ptr() for name, parameter in model.named_parameters()} == before


def test_published_dtype() -> None:
    model = _llama()
    blob = state_dict_to_blob(model, torch.bfloat16)
    assert {tensor.dtype for tensor in load(blob).values()} == {torch.bfloat16}
    load_blob(model, blob)
    assert model.dtype == torch.float32
    assert state_dict_to_blob(model, torch.bfloat16) == blob


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), "missing model.norm.weight"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "unexpected extra"),
        (lambda tensors: tensors.update({"model.norm.weight": torch.ones(3)}), r"shape \(3,\) instead of \(16,\)"),
    ],
)
def test_a_blob_that_does_not_fit_is_refused_and_changes_nothing(change, message: str) -> None:
    tensors = load(state_dict_to_blob(_llama(seed=1)))
    change(tensors)
    model = _llama()
    before = _logits(model)
    with pytest.raises(WeightsMismatch, match=message):
        load_blob(model, save(tensors))
    assert torch.equal(_logits(model), before)


@pytest.mark.parametrize("blob", [b"", b"not safetensors at all", state_dict_to_blob(_llama())[:-4]])
def test_a_damaged_blob_is_refused(blob: bytes) -> None:
    with pytest.raises(WeightsMismatch, match="not a readable safetensors file"):
        load_blob(_llama(), blob)
