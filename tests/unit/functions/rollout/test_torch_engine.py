"""The torch engine: exact logprobs, tokens that depend on nothing but the address, and the port's rules."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from functions.rollout.engine import Engine, FinishedSequence, GeneratedTokens, SamplingParams, SequenceRequest
from functions.rollout.torch_engine.engine import TorchEngine
from functions.rollout.torch_engine.generic import TransformersDecoder
from functions.rollout.torch_engine.llama import LlamaDecoder
from shared.contracts.errors import InvalidInput
from shared.modeling.errors import UnsupportedModel, WeightsMismatch
from shared.modeling.logprobs import token_logprobs
from shared.modeling.randomness import address_seed
from shared.modeling.weights import state_dict_to_blob

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


def _llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))


def _llama_with_biases() -> PreTrainedModel:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10_000.0}
    return LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=rope))


def _qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES))


def _qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=True))


def _mistral_with_window() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=5))


def _gpt2() -> PreTrainedModel:
    special = {"bos_token_id": None, "eos_token_id": EOS}
    config = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=VOCAB, initializer_range=0.3, **special)
    return GPT2LMHeadModel(config)


DIRECT = [_llama, _llama_with_biases, _qwen2, _qwen3]
GENERIC = [_mistral_with_window, _gpt2]


def _build(family=_llama, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    model = family().eval()
    with torch.no_grad():  # biases and norms start at 0 and 1, which would hide what reads them wrongly
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def _requests(num_prompts: int = 5, group_size: int = 4, seed: int = 7) -> list[SequenceRequest]:
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


def _generated(token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> GeneratedTokens:
    """One unfinished turn."""
    return GeneratedTokens(
        token_ids=token_ids, logprobs=logprobs, processed_logprobs=logprobs, loss_mask=(True,) * len(token_ids)
    )


def _drain(engine: Engine) -> list[FinishedSequence]:
    finished = []
    while engine.num_running:
        finished += engine.step()
    return finished


def _generate(
    engine: Engine, requests: Sequence[SequenceRequest], params: SamplingParams = PARAMS
) -> list[FinishedSequence]:
    engine.add(requests, params)
    return _sorted(_drain(engine))


def _sorted(sequences: Sequence[FinishedSequence]) -> list[FinishedSequence]:
    return sorted(sequences, key=lambda sequence: (sequence.row_uid, sequence.sample))


def _assert_same(actual: Sequence[FinishedSequence], expected: Sequence[FinishedSequence]) -> None:
    assert [replace(sequence, logprobs=(), processed_logprobs=()) for sequence in actual] == [
        replace(sequence, logprobs=(), processed_logprobs=()) for sequence in expected
    ]
    for one, other in zip(actual, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
        assert one.processed_logprobs == pytest.approx(other.processed_logprobs, abs=1e-5)


def _full_logprobs(
    model: PreTrainedModel, request: SequenceRequest, sequence: FinishedSequence, temperature: float = 1.0
) -> list[float]:
    """By transformers' own forward pass over the whole sequence."""
    ids = torch.tensor([request.prompt_token_ids + sequence.token_ids])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits
    start = len(request.prompt_token_ids)
    return token_logprobs(logits[:, start - 1 : -1], ids[:, start:], temperature)[0].tolist()


@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_logprobs_equal_a_full_forward_pass(family) -> None:
    requests = _requests()
    engine, reference = TorchEngine(_build(family)), _build(family)
    assert LlamaDecoder.supports(reference) == (family in DIRECT)
    finished = _generate(engine, requests)
    assert len(finished) == len(requests)
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(_full_logprobs(reference, request, sequence), abs=1e-5)


@pytest.mark.parametrize("family", DIRECT)
def test_both_forward_passes_give_the_same(family, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = _generate(TorchEngine(_build(family)), _requests())
    monkeypatch.setattr(LlamaDecoder, "supports", lambda model: False)
    engine = TorchEngine(_build(family))
    assert isinstance(engine._decoder, TransformersDecoder)
    _assert_same(_generate(engine, _requests()), direct)


@pytest.mark.parametrize("family", [_llama, _mistral_with_window])
def test_tokens_do_not_depend_on_the_batch(family) -> None:
    requests = _requests()
    engine = TorchEngine(_build(family))
    together = _generate(engine, requests)
    assert len({len(sequence.token_ids) for sequence in together}) > 3  # so that rows leave at different times
    alone = [sequence for request in requests for sequence in _generate(engine, [request])]
    _assert_same(_sorted(alone), together)
    _assert_same(_generate(engine, requests[::-1]), together)


def test_sequences_may_join_while_others_run() -> None:
    requests = _requests()
    engine = TorchEngine(_build())
    together = _generate(engine, requests)
    finished = []
    for request in requests:
        engine.add([request], PARAMS)
        finished += engine.step()
    _assert_same(_sorted(finished + _drain(engine)), together)


@pytest.mark.parametrize("num_steps", [0, 1, 7])
def test_a_resumed_sequence_goes_on_as_if_never_interrupted(num_steps: int) -> None:
    requests = _requests()
    engine, second = TorchEngine(_build()), TorchEngine(_build())
    uninterrupted = _generate(engine, requests)
    engine.add(requests, PARAMS)
    finished = [sequence for _ in range(num_steps) for sequence in engine.step()]
    partials = {(partial.row_uid, partial.sample): partial for partial in engine.abort()}
    assert len(finished) + len(partials) == len(requests)
    assert engine.num_running == 0
    resumed = [
        replace(
            request,
            generated=partials[request.row_uid, request.sample],
        )
        for request in requests
        if (request.row_uid, request.sample) in partials
    ]
    _assert_same(_sorted(finished + _generate(second, resumed)), uninterrupted)


def test_the_budget_counts_resumed_tokens() -> None:
    request = replace(_requests()[0], generated=_generated((5,) * 20, (-1.5,) * 20))
    never_eos = replace(PARAMS, eos_token_ids=())
    (sequence,) = _generate(TorchEngine(_build()), [request], never_eos)
    assert len(sequence.token_ids) == 24
    assert sequence.token_ids[:20] == (5,) * 20
    assert sequence.logprobs[:20] == (-1.5,) * 20
    assert sequence.finish_reason == "length"


@pytest.mark.parametrize("family", [_llama, _mistral_with_window])
def test_long_completions_outgrow_the_first_slots(family) -> None:
    requests, reference = _requests(group_size=1), _build(family)
    params = replace(PARAMS, max_tokens=110, eos_token_ids=())
    for request, sequence in zip(requests, _generate(TorchEngine(_build(family)), requests, params), strict=True):
        assert len(sequence.token_ids) == 110
        assert sequence.logprobs == pytest.approx(_full_logprobs(reference, request, sequence), abs=1e-5)


def test_finish_reasons() -> None:
    finished = _generate(TorchEngine(_build()), _requests(group_size=16))
    reasons = {sequence.finish_reason for sequence in finished}
    assert reasons == {"stop", "length"}
    for sequence in finished:
        assert EOS not in sequence.token_ids[:-1]
        assert (sequence.token_ids[-1] == EOS) == (sequence.finish_reason == "stop")
        assert len(sequence.token_ids) == 24 or sequence.finish_reason == "stop"
        assert len(sequence.logprobs) == len(sequence.token_ids)


def test_any_eos_ends_a_completion() -> None:
    params = replace(PARAMS, eos_token_ids=(EOS, 5, 9))
    finished = _generate(TorchEngine(_build()), _requests(group_size=16), params)
    assert {sequence.token_ids[-1] for sequence in finished if sequence.finish_reason == "stop"} == {EOS, 5, 9}


def test_min_tokens_hold_eos_back_without_changing_logprobs() -> None:
    requests, reference = _requests(group_size=8), _build()
    finished = _generate(TorchEngine(_build()), requests, replace(PARAMS, min_tokens=10))
    lengths = [len(sequence.token_ids) for sequence in finished]
    assert min(lengths) == 11
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(_full_logprobs(reference, request, sequence), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_logprobs_are_tempered_and_not_truncated(temperature: float) -> None:
    requests, reference = _requests(), _build()
    params = replace(PARAMS, temperature=temperature, top_p=0.8, top_k=6)
    for request, sequence in zip(requests, _generate(TorchEngine(_build()), requests, params), strict=True):
        expected = _full_logprobs(reference, request, sequence, temperature)
        assert sequence.logprobs == pytest.approx(expected, abs=1e-5)


def test_processed_logprobs_are_the_full_ones_where_nothing_is_restricted() -> None:
    for sequence in _generate(TorchEngine(_build()), _requests()):
        assert sequence.processed_logprobs == sequence.logprobs
        assert sequence.loss_mask == (True,) * len(sequence.token_ids)
    for sequence in _generate(TorchEngine(_build()), _requests(), replace(PARAMS, top_k=2)):
        assert all(p > q for p, q in zip(sequence.processed_logprobs, sequence.logprobs, strict=True))


def test_temperature_zero_is_greedy_with_untempered_logprobs() -> None:
    requests, reference = _requests(group_size=1), _build()
    greedy = _generate(TorchEngine(_build()), requests, replace(PARAMS, temperature=0.0))
    for request, sequence in zip(requests, greedy, strict=True):
        expected = reference.generate(
            torch.tensor([request.prompt_token_ids]), max_new_tokens=24, do_sample=False, pad_token_id=0
        )
        assert sequence.token_ids == tuple(expected[0, len(request.prompt_token_ids) :].tolist())
        assert sequence.logprobs == pytest.approx(_full_logprobs(reference, request, sequence), abs=1e-5)


def test_parameters_may_differ_between_running_sequences() -> None:
    requests = _requests()
    first, second = requests[:7], requests[7:]
    hot = replace(PARAMS, temperature=1.4, max_tokens=9, eos_token_ids=(4,))
    engine = TorchEngine(_build())
    separate = _sorted(_generate(engine, first) + _generate(engine, second, hot))
    engine.add(first, PARAMS)
    engine.add(second, hot)
    _assert_same(_sorted(_drain(engine)), separate)


def test_load_switches_to_other_weights() -> None:
    engine = TorchEngine(_build(seed=0))
    _generate(engine, _requests())
    engine.load(state_dict_to_blob(_build(seed=1)))
    _assert_same(_generate(engine, _requests()), _generate(TorchEngine(_build(seed=1)), _requests()))


def test_load_refuses_foreign_weights_and_running_sequences() -> None:
    engine = TorchEngine(_build())
    with pytest.raises(WeightsMismatch):
        engine.load(state_dict_to_blob(_build(_qwen2)))
    engine.add(_requests(), PARAMS)
    with pytest.raises(RuntimeError, match="abort them first"):
        engine.load(state_dict_to_blob(_build(seed=1)))


def test_an_engine_for_a_folder_computes_after_load(tmp_path) -> None:
    model = _build()
    model.save_pretrained(tmp_path)
    engine = TorchEngine.for_model(tmp_path)
    engine.load(state_dict_to_blob(model))
    _assert_same(_generate(engine, _requests()), _generate(TorchEngine(_build()), _requests()))


def test_bfloat16_stays_close() -> None:
    requests = _requests()
    model = _build()
    finished = _generate(TorchEngine(_build().to(torch.bfloat16)), requests)
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(_full_logprobs(model, request, sequence), abs=0.25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": ()}, "no tokens"),
        ({"prompt_token_ids": (3, VOCAB)}, "vocabulary"),
        ({"prompt_token_ids": (3, -1)}, "vocabulary"),
        ({"prompt_token_ids": (3,) * 105}, "context of 128"),
        ({"generated": _generated((VOCAB,), (-1.0,))}, "vocabulary"),
        ({"generated": replace(_generated((3,), (-1.0,)), logprobs=())}, "number of logprobs"),
        ({"generated": replace(_generated((3,), (-1.0,)), processed_logprobs=())}, "number of logprobs"),
        ({"generated": replace(_generated((3,), (-1.0,)), loss_mask=())}, "its loss mask"),
        ({"generated": _generated((3,) * 24, (-1.0,) * 24)}, "already complete"),
        ({"generated": _generated((3, EOS), (-1.0, -1.0))}, "already complete"),
    ],
)
def test_bad_requests_are_refused_and_nothing_is_added(change: dict, message: str) -> None:
    engine = TorchEngine(_build())
    requests = _requests()
    with pytest.raises(InvalidInput, match=message):
        engine.add([requests[0], replace(requests[1], **change)], PARAMS)
    assert engine.num_running == 0


def test_nothing_to_do() -> None:
    engine = TorchEngine(_build())
    engine.add([], PARAMS)
    assert engine.step() == []
    assert engine.abort() == []


def test_models_that_cannot_be_computed_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="MambaForCausalLM"):
        TorchEngine(MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=VOCAB)))


def test_gemma2_softcap_is_refused_rather_than_ignored() -> None:
    with pytest.raises(UnsupportedModel, match="softcap"):
        TorchEngine(Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8)))
