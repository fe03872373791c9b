"""The torch engine: exact logprobs, tokens that depend on nothing but the address, and the port's rules."""

from dataclasses import replace

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from functions.rollout.torch_engine.engine import TorchEngine
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.errors import InvalidInput
from shared.contracts.lora import LoraConfig
from shared.inference.generic import TransformersDecoder
from shared.inference.llama import LlamaDecoder
from shared.modeling.errors import UnsupportedModel, WeightsMismatch
from shared.modeling.weights import state_dict_to_blob
from shared.training.lora import attach_adapter, initial_adapter
from tests.unit.functions.rollout.engine_runs import (
    DIRECT,
    EOS,
    GENERIC,
    PARAMS,
    SIZES,
    VOCAB,
    assert_same,
    build,
    drain,
    full_logprobs,
    generate,
    in_order,
    llama,
    make_generated,
    make_requests,
    mistral_with_window,
    qwen2,
)
from tests.unit.shared.training.test_lora import noisy


@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_logprobs_equal_a_full_forward_pass(family) -> None:
    requests = make_requests()
    engine, reference = TorchEngine(build(family)), build(family)
    assert LlamaDecoder.supports(reference) == (family in DIRECT)
    finished = generate(engine, requests)
    assert len(finished) == len(requests)
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(full_logprobs(reference, request, sequence), abs=1e-5)


@pytest.mark.parametrize("family", DIRECT)
def test_both_forward_passes_give_the_same(family, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = generate(TorchEngine(build(family)), make_requests())
    monkeypatch.setattr(LlamaDecoder, "supports", lambda model: False)
    engine = TorchEngine(build(family))
    assert isinstance(engine._decoder, TransformersDecoder)
    assert_same(generate(engine, make_requests()), direct)


@pytest.mark.parametrize("family", [llama, mistral_with_window])
def test_tokens_do_not_depend_on_the_batch(family) -> None:
    requests = make_requests()
    engine = TorchEngine(build(family))
    together = generate(engine, requests)
    assert len({len(sequence.token_ids) for sequence in together}) > 3  # so that rows leave at different times
    alone = [sequence for request in requests for sequence in generate(engine, [request])]
    assert_same(in_order(alone), together)
    assert_same(generate(engine, requests[::-1]), together)


def test_sequences_may_join_while_others_run() -> None:
    requests = make_requests()
    engine = TorchEngine(build())
    together = generate(engine, requests)
    finished = []
    for request in requests:
        engine.add([request], PARAMS)
        finished += engine.step()
    assert_same(in_order(finished + drain(engine)), together)


@pytest.mark.parametrize("num_steps", [0, 1, 7])
def test_a_resumed_sequence_goes_on_as_if_never_interrupted(num_steps: int) -> None:
    requests = make_requests()
    engine, second = TorchEngine(build()), TorchEngine(build())
    uninterrupted = generate(engine, requests)
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
    assert_same(in_order(finished + generate(second, resumed)), uninterrupted)


def test_the_budget_counts_resumed_tokens() -> None:
    request = replace(make_requests()[0], generated=make_generated((5,) * 20, (-1.5,) * 20))
    never_eos = replace(PARAMS, eos_token_ids=())
    (sequence,) = generate(TorchEngine(build()), [request], never_eos)
    assert len(sequence.token_ids) == 24
    assert sequence.token_ids[:20] == (5,) * 20
    assert sequence.logprobs[:20] == (-1.5,) * 20
    assert sequence.finish_reason == "length"


@pytest.mark.parametrize("family", [llama, mistral_with_window])
def test_long_completions_outgrow_the_first_slots(family) -> None:
    requests, reference = make_requests(group_size=1), build(family)
    params = replace(PARAMS, max_tokens=110, eos_token_ids=())
    for request, sequence in zip(requests, generate(TorchEngine(build(family)), requests, params), strict=True):
        assert len(sequence.token_ids) == 110
        assert sequence.logprobs == pytest.approx(full_logprobs(reference, request, sequence), abs=1e-5)


def test_finish_reasons() -> None:
    finished = generate(TorchEngine(build()), make_requests(group_size=16))
    reasons = {sequence.finish_reason for sequence in finished}
    assert reasons == {"stop", "length"}
    for sequence in finished:
        assert EOS not in sequence.token_ids[:-1]
        assert (sequence.token_ids[-1] == EOS) == (sequence.finish_reason == "stop")
        assert len(sequence.token_ids) == 24 or sequence.finish_reason == "stop"
        assert len(sequence.logprobs) == len(sequence.token_ids)


def test_any_eos_ends_a_completion() -> None:
    params = replace(PARAMS, eos_token_ids=(EOS, 5, 9))
    finished = generate(TorchEngine(build()), make_requests(group_size=16), params)
    assert {sequence.token_ids[-1] for sequence in finished if sequence.finish_reason == "stop"} == {EOS, 5, 9}


def test_min_tokens_hold_eos_back_without_changing_logprobs() -> None:
    requests, reference = make_requests(group_size=8), build()
    finished = generate(TorchEngine(build()), requests, replace(PARAMS, min_tokens=10))
    lengths = [len(sequence.token_ids) for sequence in finished]
    assert min(lengths) == 11
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(full_logprobs(reference, request, sequence), abs=1e-5)


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_logprobs_are_tempered_and_not_truncated(temperature: float) -> None:
    requests, reference = make_requests(), build()
    params = replace(PARAMS, temperature=temperature, top_p=0.8, top_k=6)
    for request, sequence in zip(requests, generate(TorchEngine(build()), requests, params), strict=True):
        expected = full_logprobs(reference, request, sequence, temperature)
        assert sequence.logprobs == pytest.approx(expected, abs=1e-5)


def test_processed_logprobs_are_the_full_ones_where_nothing_is_restricted() -> None:
    for sequence in generate(TorchEngine(build()), make_requests()):
        assert sequence.processed_logprobs == sequence.logprobs
        assert sequence.loss_mask == (True,) * len(sequence.token_ids)
    for sequence in generate(TorchEngine(build()), make_requests(), replace(PARAMS, top_k=2)):
        assert all(p > q for p, q in zip(sequence.processed_logprobs, sequence.logprobs, strict=True))


def test_temperature_zero_is_greedy_with_untempered_logprobs() -> None:
    requests, reference = make_requests(group_size=1), build()
    greedy = generate(TorchEngine(build()), requests, replace(PARAMS, temperature=0.0))
    for request, sequence in zip(requests, greedy, strict=True):
        expected = reference.generate(
            torch.tensor([request.prompt_token_ids]), max_new_tokens=24, do_sample=False, pad_token_id=0
        )
        assert sequence.token_ids == tuple(expected[0, len(request.prompt_token_ids) :].tolist())
        assert sequence.logprobs == pytest.approx(full_logprobs(reference, request, sequence), abs=1e-5)


def test_parameters_may_differ_between_running_sequences() -> None:
    requests = make_requests()
    first, second = requests[:7], requests[7:]
    hot = replace(PARAMS, temperature=1.4, max_tokens=9, eos_token_ids=(4,))
    engine = TorchEngine(build())
    separate = in_order(generate(engine, first) + generate(engine, second, hot))
    engine.add(first, PARAMS)
    engine.add(second, hot)
    assert_same(in_order(drain(engine)), separate)


def test_load_switches_to_other_weights() -> None:
    engine = TorchEngine(build(seed=0))
    generate(engine, make_requests())
    engine.load(state_dict_to_blob(build(seed=1)))
    assert_same(generate(engine, make_requests()), generate(TorchEngine(build(seed=1)), make_requests()))


def test_load_refuses_foreign_weights_and_running_sequences() -> None:
    engine = TorchEngine(build())
    with pytest.raises(WeightsMismatch):
        engine.load(state_dict_to_blob(build(qwen2)))
    engine.add(make_requests(), PARAMS)
    with pytest.raises(RuntimeError, match="abort them first"):
        engine.load(state_dict_to_blob(build(seed=1)))


def test_an_engine_for_a_folder_computes_after_load(tmp_path) -> None:
    model = build()
    model.save_pretrained(tmp_path)
    engine = TorchEngine.for_model(tmp_path)
    engine.load(state_dict_to_blob(model))
    assert_same(generate(engine, make_requests()), generate(TorchEngine(build()), make_requests()))


def test_bfloat16_stays_close() -> None:
    requests = make_requests()
    model = build()
    finished = generate(TorchEngine(build().to(torch.bfloat16)), requests)
    for request, sequence in zip(requests, finished, strict=True):
        assert sequence.logprobs == pytest.approx(full_logprobs(model, request, sequence), abs=0.25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_token_ids": ()}, "no tokens"),
        ({"prompt_token_ids": (3, VOCAB)}, "vocabulary"),
        ({"prompt_token_ids": (3, -1)}, "vocabulary"),
        ({"prompt_token_ids": (3,) * 105}, "context of 128"),
        ({"generated": make_generated((VOCAB,), (-1.0,))}, "vocabulary"),
        ({"generated": replace(make_generated((3,), (-1.0,)), logprobs=())}, "number of logprobs"),
        ({"generated": replace(make_generated((3,), (-1.0,)), processed_logprobs=())}, "number of logprobs"),
        ({"generated": replace(make_generated((3,), (-1.0,)), loss_mask=())}, "its loss mask"),
        ({"generated": make_generated((3,) * 24, (-1.0,) * 24)}, "already complete"),
        ({"generated": make_generated((3, EOS), (-1.0, -1.0))}, "already complete"),
    ],
)
def test_bad_requests_are_refused_and_nothing_is_added(change: dict, message: str) -> None:
    engine = TorchEngine(build())
    requests = make_requests()
    with pytest.raises(InvalidInput, match=message):
        engine.add([requests[0], replace(requests[1], **change)], PARAMS)
    assert engine.num_running == 0


def test_nothing_to_do() -> None:
    engine = TorchEngine(build())
    engine.add([], PARAMS)
    assert engine.step() == []
    assert engine.abort() == []


def test_models_that_cannot_be_computed_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="MambaForCausalLM"):
        TorchEngine(MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=VOCAB)))


def test_gemma2_softcap_is_refused_rather_than_ignored() -> None:
    with pytest.raises(UnsupportedModel, match="softcap"):
        TorchEngine(Gemma2ForCausalLM(Gemma2Config(**SIZES, head_dim=8)))


def test_an_adapter_is_merged_and_taken_out_without_a_trace() -> None:
    model = build()
    adapter = encode_adapter(noisy(initial_adapter(build(), LoraConfig(rank=2, alpha=4))))
    engine = TorchEngine(model)
    base = state_dict_to_blob(model)
    engine.load(base)
    engine.adapt(adapter)
    adapted = generate(engine, make_requests())
    trained = build()
    attach_adapter(trained, adapter)
    for sent, sequence in zip(make_requests(), adapted, strict=True):
        assert sequence.logprobs == pytest.approx(full_logprobs(trained, sent, sequence), abs=1e-5)
    engine.adapt(None)
    assert state_dict_to_blob(model) == base
    engine.add(make_requests(), PARAMS)
    with pytest.raises(RuntimeError, match="abort"):
        engine.adapt(adapter)
