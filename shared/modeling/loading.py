"""Models as transformers builds them: with the weights of a checkpoint, or empty for a weights blob."""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

from shared.modeling.errors import UnknownModel, UnsupportedModel
from shared.modeling.folder import CONFIG_FILES, WEIGHT_FILES, model_folder

_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def load_config(path_or_hub_id: str | Path) -> PreTrainedConfig:
    """The model's configuration. Raises UnknownModel."""
    folder = model_folder(path_or_hub_id, CONFIG_FILES)
    if not (folder / "config.json").is_file():
        raise UnknownModel(f"{folder} has no config.json: it is not a model folder.")
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise UnknownModel(f"The config.json of {path_or_hub_id} cannot be read: {error}") from error


def load_model(
    path_or_hub_id: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> PreTrainedModel:
    """The causal language model with its weights, in eval mode: dropout stays off in training passes too,
    so that learner and rollout logprobs describe the same function.

    Only safetensors are read and no code from the folder is run. Raises UnknownModel, UnsupportedModel.
    """
    config = load_config(path_or_hub_id)
    folder = model_folder(path_or_hub_id, CONFIG_FILES + WEIGHT_FILES)
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except OSError as error:
        raise UnknownModel(f"The weights of {path_or_hub_id} cannot be read: {error}") from error
    except ValueError as error:
        raise UnsupportedModel(f"{path_or_hub_id} is not a causal language model: {error}") from error
    return model.to(device).eval()


def new_model(
    path_or_hub_id: str | Path,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> PreTrainedModel:
    """The architecture alone, in eval mode; parameters are allocated, not initialised: load a blob first.

    Buffers that no checkpoint holds (rotary frequencies) are computed, on the CPU wherever they go to, so that all
    devices compute with the same. It swaps torch's initialisers while it
    runs, so no other thread may build modules meanwhile. Raises UnknownModel, UnsupportedModel.
    """
    config = load_config(path_or_hub_id)
    try:
        with no_init_weights():
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except ValueError as error:
        raise UnsupportedModel(f"{path_or_hub_id} is not a causal language model: {error}") from error
    placed = _placed(model, torch.device(device))
    placed.tie_weights()
    return placed.eval()


def _placed(model: PreTrainedModel, device: torch.device) -> PreTrainedModel:
    """The model on the device. What its parameters hold stays behind: it is nothing, and its memory was not touched."""
    if device.type == "cpu":
        return model

    def place(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device) if isinstance(tensor, nn.Parameter) else tensor.to(device)

    model._apply(place)
    return model


def context_length(config: PreTrainedConfig) -> int:
    """The most tokens, prompt and completion together, that the model was built for."""
    text_config = config.get_text_config()
    for field in _CONTEXT_FIELDS:
        if (length := getattr(text_config, field, None)) is not None:
            return int(length)
    raise UnsupportedModel(f"The configuration of {config.model_type} names no context length.")
