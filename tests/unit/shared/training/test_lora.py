"""Adapters in a model that is trained."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import PreTrainedModel

from functions.critic.value_model import new_value_model
from shared.codec.lora_adapter import LoraAdapter, decode_adapter, encode_adapter, peft_config
from shared.contracts.errors import InvalidInput
from shared.contracts.lora import LoraConfig
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.weights import state_dict_to_blob
from shared.training.errors import DamagedState, InvalidTrainingConfig
from shared.training.forward import completion_logprobs, trained_logits
from shared.training.lora import adapter_of, attach_adapter, initial_adapter
from shared.training.optimizer import trainable_parameters
from tests.unit.functions.learner.builders import ragged_rows, tiny_model

CONFIG = LoraConfig(rank=4, alpha=8)


def noisy(adapter: LoraAdapter, seed: int = 0) -> LoraAdapter:
    """The adapter as training might have left it: B is not zero any more."""
    rng = np.random.default_rng(seed)
    matrices = {
        name: (a, rng.normal(scale=0.3, size=b.shape).astype(np.float32)) for name, (a, b) in adapter.matrices.items()
    }
    return LoraAdapter(rank=adapter.rank, alpha=adapter.alpha, matrices=matrices)


def logprobs_of(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad(), trained_logits(model, share_prompts=True) as logits_of:
        return completion_logprobs(logits_of, ragged_rows(), 1.0)


def test_version_0_is_the_model_and_trains_the_adapter_only() -> None:
    model = tiny_model()
    expected = logprobs_of(model)
    adapter = initial_adapter(model, CONFIG)
    assert torch.equal(logprobs_of(model), expected)
    assert len(adapter.matrices) == 2 * 7
    assert not any(name == "lm_head" or "embed" in name for name in adapter.matrices)
    assert all(np.any(a) and not np.any(b) for a, b in adapter.matrices.values())
    names = trainable_parameters(model)
    assert len(names) == 2 * 14
    assert all(".lora_A." in name or ".lora_B." in name for name in names)


def test_the_seed_decides_and_nothing_else_is_drawn() -> None:
    torch.manual_seed(3)
    undisturbed = torch.rand(1)
    torch.manual_seed(3)
    configs = [LoraConfig(rank=2, alpha=1, seed=seed) for seed in (1, 1, 2)]
    blobs = [encode_adapter(initial_adapter(tiny_model_undisturbed(), config)) for config in configs]
    assert blobs[0] == blobs[1] != blobs[2]
    assert torch.equal(torch.rand(1), undisturbed)


def tiny_model_undisturbed() -> PreTrainedModel:
    with torch.random.fork_rng():
        return tiny_model()


def test_named_layers_only() -> None:
    config = LoraConfig(rank=2, alpha=1, target_modules=("q_proj", "down_proj"))
    names = initial_adapter(tiny_model(), config).matrices
    assert {name.rpartition(".")[2] for name in names} == {"q_proj", "down_proj"}
    assert len(names) == 4


@pytest.mark.parametrize("targets", [("no_such_layer",), ("embed_tokens",)])
def test_layers_that_cannot_be_adapted_are_refused(targets: tuple[str, ...]) -> None:
    with pytest.raises(InvalidTrainingConfig, match="target_modules"):
        initial_adapter(tiny_model(), LoraConfig(rank=2, alpha=1, target_modules=targets))


def test_a_tied_output_is_refused() -> None:
    config = LoraConfig(rank=2, alpha=1, target_modules=("lm_head",))
    with pytest.raises(InvalidTrainingConfig, match="target_modules"):
        initial_adapter(tiny_model(tie_word_embeddings=True), config)


def test_a_stored_adapter_continues_exactly() -> None:
    adapter = noisy(initial_adapter(tiny_model(), CONFIG))
    model = tiny_model()
    attach_adapter(model, encode_adapter(adapter))
    assert encode_adapter(adapter_of(model)) == encode_adapter(adapter)
    assert not torch.equal(logprobs_of(model), logprobs_of(tiny_model()))


def test_merged_and_attached_are_the_same_policy() -> None:
    blob = encode_adapter(noisy(initial_adapter(tiny_model(), CONFIG)))
    attached, merged = tiny_model(), tiny_model()
    attach_adapter(attached, blob)
    MergedWeights(merged).merge(blob)
    torch.testing.assert_close(logprobs_of(merged), logprobs_of(attached), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "blob", [b"nothing", encode_adapter(noisy(initial_adapter(tiny_model(hidden_size=16), CONFIG)))]
)
def test_a_damaged_adapter_and_one_of_another_model_are_refused(blob: bytes) -> None:
    model = tiny_model()
    with pytest.raises(DamagedState):
        attach_adapter(model, blob)
    assert state_dict_to_blob(model) == state_dict_to_blob(tiny_model())


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")
def test_peft_loads_a_published_adapter(tmp_path: Path) -> None:
    blob = encode_adapter(noisy(initial_adapter(tiny_model(), CONFIG)))
    (tmp_path / "adapter_model.safetensors").write_bytes(blob)
    (tmp_path / "adapter_config.json").write_text(json.dumps(peft_config(decode_adapter(blob), "tiny")))
    loaded = PeftModel.from_pretrained(tiny_model(), str(tmp_path))
    expected = tiny_model()
    attach_adapter(expected, blob)
    tokens = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        torch.testing.assert_close(loaded(tokens).logits, expected(tokens).logits, atol=0, rtol=0)


def test_a_value_model_can_be_adapted_too(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    model = new_value_model(str(tmp_path))
    assert "lm_head" not in initial_adapter(model, CONFIG).matrices


@pytest.mark.slow
def test_peft_is_imported_by_runs_with_lora_only() -> None:
    code = "import shared.training.model_in_training, sys; print('peft' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_image_without_peft_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InvalidInput, match="lacks the package peft"):
        initial_adapter(tiny_model(), CONFIG)
