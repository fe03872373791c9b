"""Makes the 3.3M-parameter Qwen2 that the step benchmark is quoted for: random weights, a tokenizer of single bytes."""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCAB_SIZE = 512
"""More than the tokenizer has, as models are often padded."""
NUM_LAYERS, HIDDEN, HEADS, KV_HEADS, FEED_FORWARD = 4, 256, 4, 2, 768


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and an end token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: id for id, token in enumerate([*alphabet, "<eos>"])}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """The same random weights every time."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=NUM_LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def main() -> None:
    """Write the model folder."""
    parser = argparse.ArgumentParser(prog="scripts/bench model", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: {sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}M parameters")


if __name__ == "__main__":
    main()
