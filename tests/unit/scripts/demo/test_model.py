"""The shipped warm start: small, readable by transformers, and about as good as its README says."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from functions.rollout.engine import SamplingParams, SequenceRequest
from functions.rollout.torch_engine import TorchEngine
from scripts.demo.accuracy import MAX_TOKENS, accuracy
from scripts.demo.addition import ALPHABET, heldout_additions
from scripts.demo.make_warm_start import MODEL, demonstration_batches, demonstrations, make_model, make_tokenizer
from shared.modeling.loading import context_length, load_model
from shared.modeling.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(MODEL)


def test_the_tokenizer_is_one_token_per_character(tokenizer: Tokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(MODEL)
    text = heldout_additions()[0].prompt + heldout_additions()[0].demonstration
    ids = tokenizer.encode(text)
    assert ids == theirs(text).input_ids
    assert len(ids) == len(text)
    assert tokenizer.decode([*ids, *tokenizer.eos_token_ids]) == text
    assert theirs.decode(ids) == text
    assert tokenizer.vocab_size == len(theirs) == len(ALPHABET) + 3
    assert tokenizer.decode(tokenizer.encode("?"), skip_special_tokens=False) == "<unk>"


def test_the_folder_is_small_and_consistent(tokenizer: Tokenizer) -> None:
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    assert 640_000 < model.num_parameters() < 660_000
    assert (MODEL / "model.safetensors").stat().st_size < 3_000_000
    assert model.generation_config.eos_token_id == tokenizer.eos_token_ids[0]
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert context_length(model.config) == 64


def test_a_third_of_what_it_samples_is_right(tokenizer: Tokenizer) -> None:
    engine = TorchEngine(load_model(MODEL))
    sampled = accuracy(engine, tokenizer, heldout_additions()[:64])
    assert 0.2 < sampled < 0.5
    assert accuracy(engine, tokenizer, heldout_additions()[:64], greedy=True) > sampled


def test_only_completions_are_learnt(tokenizer: Tokenizer) -> None:
    token_ids, learnt = next(demonstration_batches(tokenizer, demonstrations()[:5], seed=0))
    by_prompt = {problem.prompt: problem.demonstration for problem in demonstrations()[:5]}
    for ids, row in zip(token_ids, learnt, strict=True):
        prompt, completion = tokenizer.decode(ids[:8].tolist()), ids[row].tolist()
        assert not row[:8].any()
        assert completion[-1] == tokenizer.eos_token_ids[0]
        assert tokenizer.decode(completion) == by_prompt[prompt]


def test_an_untrained_model_scores_nothing(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    engine = TorchEngine(make_model(make_tokenizer()))
    assert accuracy(engine, tokenizer, heldout_additions()[:8]) == 0.0


def test_the_same_tokens_in_any_batch(tokenizer: Tokenizer) -> None:
    """Addressed randomness on the demo's own model: 64 sequences at once equal the same ones in fours."""
    params = SamplingParams(temperature=1.0, max_tokens=MAX_TOKENS, eos_token_ids=tokenizer.eos_token_ids)
    requests = [
        SequenceRequest(
            row_uid=problem.prompt, sample=0, prompt_token_ids=tuple(tokenizer.encode(problem.prompt)), seed=index
        )
        for index, problem in enumerate(heldout_additions()[:64])
    ]
    engine = TorchEngine(load_model(MODEL))

    def generate(part: list[SequenceRequest]) -> dict[str, tuple[int, ...]]:
        engine.add(part, params)
        tokens: dict[str, tuple[int, ...]] = {}
        while engine.num_running:
            tokens |= {sequence.row_uid: sequence.token_ids for sequence in engine.step()}
        return tokens

    together, apart = generate(requests), {}
    for start in range(0, 64, 4):
        apart |= generate(requests[start : start + 4])
    assert apart == together
