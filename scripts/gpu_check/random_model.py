"""Models of a given size with random weights, and the folder that says what they are."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import PreTrainedModel, Qwen2Config

from scripts.gpu_check.shapes import Shape
from shared.modeling.loading import new_model

WEIGHT_STD = 0.02
"""That of the initialisation of Qwen2."""


@contextmanager
def model_folder(shape: Shape) -> Iterator[Path]:
    """A folder with the model's config.json and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        config = Qwen2Config(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden,
            intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            max_position_embeddings=shape.context,
            tie_word_embeddings=shape.tied,
            use_sliding_window=False,
            eos_token_id=None,
            bos_token_id=None,
            architectures=["Qwen2ForCausalLM"],
        )
        config.save_pretrained(folder)
        yield Path(folder)


@torch.no_grad()
def random_model(folder: Path, dtype: torch.dtype, device: torch.device, seed: int = 0) -> PreTrainedModel:
    """The folder's architecture on the device: matrices and embeddings drawn, norms at one, biases drawn too."""
    model = new_model(folder, dtype, device)
    generator = torch.Generator(device).manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(0.0, WEIGHT_STD, generator=generator)
    return model
