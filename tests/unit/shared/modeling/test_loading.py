"""Models from folders: with weights, empty, and every kind of folder that is not a model."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig

from shared.modeling.errors import UnknownModel, UnsupportedModel
from shared.modeling.loading import context_length, load_config, load_model, new_model
from shared.modeling.weights import load_blob, state_dict_to_blob

IDS = torch.arange(10)[None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=20,
        max_position_embeddings=96,
        tie_word_embeddings=True,
        attention_dropout=0.5,
    )
    path = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def test_dropout_is_off(folder) -> None:
    model = load_model(folder)
    assert not model.training
    assert torch.equal(model(IDS).logits, model(IDS).logits)


def test_dtype(folder) -> None:
    assert load_model(folder).dtype == torch.float32
    assert load_model(folder, torch.bfloat16).dtype == torch.bfloat16
    assert new_model(folder, torch.bfloat16).dtype == torch.bfloat16


def test_an_empty_model_with_a_blob_equals_the_loaded_one(folder) -> None:
    loaded, empty = load_model(folder), new_model(folder)
    load_blob(empty, state_dict_to_blob(loaded))
    assert torch.equal(empty(IDS).logits, loaded(IDS).logits)
    assert empty.lm_head.weight is empty.get_input_embeddings().weight
    assert not empty.training


def test_elsewhere_parameters_are_made_anew_and_buffers_go_there(folder) -> None:
    there, here = new_model(folder, torch.bfloat16, "meta"), new_model(folder, torch.bfloat16)
    assert there.lm_head.weight is there.get_input_embeddings().weight
    assert not there.training
    for tensors in ("named_parameters", "named_buffers"):
        placed, expected = dict(getattr(there, tensors)()), dict(getattr(here, tensors)())
        assert placed.keys() == expected.keys()
        for name, tensor in placed.items():
            assert tensor.device.type == "meta"
            assert (tensor.shape, tensor.dtype) == (expected[name].shape, expected[name].dtype)


def test_an_empty_model_reads_no_weights(folder, tmp_path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert new_model(tmp_path).num_parameters() == load_model(folder).num_parameters()
    with pytest.raises(UnknownModel, match="weights"):
        load_model(tmp_path)


def test_torch_initialisers_are_restored(folder) -> None:
    new_model(folder)
    assert torch.nn.Linear(64, 64).weight.std() > 0


def test_pickled_weights_are_not_read(folder, tmp_path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    torch.save(load_model(folder).state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnknownModel):
        load_model(tmp_path)


@pytest.mark.parametrize("path", ["/no/such/folder", "./nowhere", "../nowhere", "with space/x"])
def test_unknown_folders(path: str) -> None:
    with pytest.raises(UnknownModel, match="no model folder"):
        load_model(path)


def test_a_hub_id_is_looked_up_in_the_cache(folder, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel, match="neither a folder"):
        load_config("someone/absent")
    repository = tmp_path / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / ("0" * 40)).symlink_to(folder)
    assert load_config("someone/tiny").hidden_size == 16


def test_folders_that_are_no_model(tmp_path) -> None:
    with pytest.raises(UnknownModel, match=r"no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(UnknownModel, match="cannot be read"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-architecture"}))
    with pytest.raises(UnknownModel, match="cannot be read"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    with pytest.raises(UnsupportedModel, match="not a causal language model"):
        new_model(tmp_path)


def test_context_length(folder) -> None:
    assert context_length(load_config(folder)) == 96
    with pytest.raises(UnsupportedModel, match="context length"):
        context_length(PreTrainedConfig())
