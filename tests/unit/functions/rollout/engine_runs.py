"""Tiny models of several families, and what the torch engine samples from them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from functions.rollout.engine import Engine, FinishedSequence, GeneratedTokens, SamplingParams, SequenceRequest
from shared.modeling.logprobs import token_logprobs
from shared.modeling.randomness import address_seed

VOCAB = 23
EOS = 2
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": EOS,
    "pad_token_id": None,
}
PARAMS = SamplingParams(temperature=1.0, max_tokens=24, eos_token_ids=(EOS,))


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))


def llama_with_biases() -> PreTrainedModel:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=rope))


def qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES))


def qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True))


def mistral_with_window() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=5))


def gpt2() -> PreTrainedModel:
    special = {"bos_token_id": None, "eos_token_id": EOS}
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, initializer_range=0.3, **special)
    return GPT2LMHeadModel(config)


DIRECT = [llama, llama_with_biases, qwen2, qwen3]
GENERIC = [mistral_with_window, gpt2]


def build(family=llama, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = family().eval()
    with torch.no_grad():  # biases and norms start at 0 and 1, which would hide what reads them wrongly
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def make_requests(num_prompts: int = 5, group_size: int = 4, seed: int = 7) -> list[SequenceRequest]:
    """Groups with prompts of 1, 4, 7, ... tokens; the second prompt begins like the third."""
    generator = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, VOCAB, (1 + 3 * i,), generator=generator).tolist() for i in range(num_prompts)]
    if num_prompts > 2:
        prompts[1] = prompts[2][: len(prompts[1])]
    return [
        SequenceRequest(
            row_uid=f"r{row}",
            sample=sample,
            prompt_token_ids=tuple(prompt),
            seed=address_seed(seed, "train", 0, 0, f"r{row}", sample),
        )
        for row, prompt in enumerate(prompts)
        for sample in range(group_size)
    ]


def make_generated(token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> GeneratedTokens:
    """One unfinished turn."""
    return GeneratedTokens(
        token_ids=token_ids, logprobs=logprobs, processed_logprobs=logprobs, loss_mask=(True,) * len(token_ids)
    )


def drain(engine: Engine) -> list[FinishedSequence]:
    finished = []
    while engine.num_running:
        finished += engine.step()
    return finished


def generate(
    engine: Engine, requests: Sequence[SequenceRequest], params: SamplingParams = PARAMS
) -> list[FinishedSequence]:
    engine.add(requests, params)
    return in_order(drain(engine))


def in_order(sequences: Sequence[FinishedSequence]) -> list[FinishedSequence]:
    return sorted(sequences, key=lambda sequence: (sequence.row_uid, sequence.sample))


def assert_same(actual: Sequence[FinishedSequence], expected: Sequence[FinishedSequence]) -> None:
    assert [replace(sequence, logprobs=(), processed_logprobs=()) for sequence in actual] == [
        replace(sequence, logprobs=(), processed_logprobs=()) for sequence in expected
    ]
    for one, other in zip(actual, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5, rel=1e-5)
        assert one.processed_logprobs == pytest.approx(other.processed_logprobs, abs=1e-5, rel=1e-5)


def full_logprobs(
    model: PreTrainedModel, request: SequenceRequest, sequence: FinishedSequence, temperature: float = 1.0
) -> list[float]:
    """By transformers' own forward pass over the whole sequence."""
    ids = torch.tensor([request.prompt_token_ids + sequence.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    start = len(request.prompt_token_ids)
    return token_logprobs(logits[:, start - 1 : -1], ids[:, start:], temperature)[0].tolist()
