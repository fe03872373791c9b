"""Sequences of several turns: what is inserted is seen by the model, counted, and never taken for sampled."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from functions.rollout.engine import FinishedSequence, GeneratedTokens, NextTurn, SamplingParams
from functions.rollout.torch_engine.engine import TorchEngine
from functions.rollout.turns.spans import insertions, last_turn, turn_starts
from shared.contracts.errors import InvalidInput
from tests.unit.functions.rollout.engine_runs import (
    DIRECT,
    EOS,
    GENERIC,
    VOCAB,
    assert_same,
    build,
    drain,
    full_logprobs,
    in_order,
    llama,
    make_requests,
    mistral_with_window,
)
from tests.unit.functions.rollout.toy_tokenizers import letter_tokenizer

TOKENIZER = letter_tokenizer()
STOP = ("ab", "0>", "g", "bc", "bd", "be", ">a", ">b")
"""Some begin as others end: the text of a turn does not go on in the next."""
PARAMS = SamplingParams(temperature=1.0, max_tokens=40, eos_token_ids=(EOS,), stop=STOP)
MAX_TURNS = 4


def answer(sequence: GeneratedTokens, stop: str | None) -> tuple[int, ...]:
    """So many tokens as the turn had, up to five, unless an EOS ended it or it was the fourth."""
    if stop is None or len(turn_starts(sequence.loss_mask)) == MAX_TURNS:
        return ()
    return tuple(3 + token_id % 11 for token_id in last_turn(sequence)[:5])


def engine_of(family: Callable = llama) -> TorchEngine:
    return TorchEngine(build(family), lambda: TOKENIZER)


def run(engine: TorchEngine, requests: list, params: SamplingParams = PARAMS, next_turn: NextTurn | None = answer):
    engine.add(requests, params, next_turn)
    return in_order(drain(engine))


def turns(sequence: GeneratedTokens) -> list[tuple[int, ...]]:
    """Sampled and inserted tokens alternately."""
    starts = turn_starts(sequence.loss_mask)
    return [sequence.token_ids[a:b] for a, b in zip(starts, (*starts[1:], None), strict=True)]


def text(token_ids: tuple[int, ...]) -> str:
    return TOKENIZER.decode(token_ids, skip_special_tokens=False)


@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_logprobs_of_later_turns_equal_a_full_forward_pass(family) -> None:
    requests, reference = make_requests(), build(family)
    finished = run(engine_of(family), requests)
    assert len({len(turn_starts(sequence.loss_mask)) for sequence in finished}) > 1
    for request, sequence in zip(requests, finished, strict=True):
        expected = full_logprobs(reference, request, sequence)
        expected = [logprob if sampled else 0.0 for logprob, sampled in zip(expected, sequence.loss_mask, strict=True)]
        assert sequence.logprobs == pytest.approx(expected, abs=1e-5)
        assert sequence.processed_logprobs == sequence.logprobs


def test_turns_end_with_what_ends_them_and_answers_follow() -> None:
    for sequence in run(engine_of(), make_requests(group_size=8)):
        inserted = insertions(sequence)
        *answered, last = turns(sequence)
        assert len(answered) == len(inserted)
        for turn, tokens in zip(answered, inserted, strict=True):
            sampled = turn[: -len(tokens)]
            assert any(stop in text(sampled) for stop in STOP)
            assert not any(stop in text(sampled[:-1]) for stop in STOP)
            assert EOS not in sampled
            assert tokens == tuple(3 + token_id % 11 for token_id in sampled[:5])
        assert EOS not in last[:-1]
        assert len(sequence.token_ids) <= PARAMS.max_tokens


def test_every_end_has_its_reason() -> None:
    seen = set()
    for sequence in run(engine_of(), make_requests(group_size=16)):
        last, is_last = turns(sequence)[-1], len(turn_starts(sequence.loss_mask)) == MAX_TURNS
        stopped = any(stop in text(last) for stop in STOP)
        if last[-1] == EOS:
            end = "eos"
            assert sequence.finish_reason == "stop"
        elif stopped and is_last:
            end = "last turn"
            assert sequence.finish_reason == "stop"
        else:
            end = "no room for the answer" if stopped else "no room for the turn"
            assert sequence.finish_reason == "length"
            assert len(sequence.token_ids) + (min(5, len(last)) if stopped else 0) >= PARAMS.max_tokens
        seen.add(end)
    assert seen == {"eos", "last turn", "no room for the answer", "no room for the turn"}


@pytest.mark.parametrize("family", [llama, mistral_with_window])
def test_tokens_do_not_depend_on_the_batch(family) -> None:
    requests = make_requests()
    engine = engine_of(family)
    together = run(engine, requests)
    assert_same(in_order([run(engine, [request])[0] for request in requests]), together)
    finished: list[FinishedSequence] = []
    for request in reversed(requests):
        engine.add([request], PARAMS, answer)
        finished += engine.step()
    assert_same(in_order(finished + drain(engine)), together)


@pytest.mark.parametrize("num_steps", range(1, 36))
def test_cut_anywhere_and_resumed_it_is_the_same(num_steps: int) -> None:
    requests = make_requests(num_prompts=3)
    uninterrupted, engine = run(engine_of(), requests), engine_of()
    engine.add(requests, PARAMS, answer)
    finished = [sequence for _ in range(num_steps) for sequence in engine.step()]
    partials = {(partial.row_uid, partial.sample): partial for partial in engine.abort()}
    resumed = [
        replace(request, generated=partials[request.row_uid, request.sample])
        for request in requests
        if (request.row_uid, request.sample) in partials
    ]
    assert_same(in_order(finished + run(engine_of(), resumed)), uninterrupted)


def test_resumed_at_60_of_100_tokens_it_has_40_more() -> None:
    params = replace(PARAMS, max_tokens=100, eos_token_ids=(), stop=("a", "c", "e", "g"))
    requests = make_requests(num_prompts=3, group_size=8)

    def three_more(sequence: GeneratedTokens, stop: str | None) -> tuple[int, ...]:
        return (5, 6, 7)

    whole = run(engine_of(), requests, params, three_more)
    assert all(97 <= len(sequence.token_ids) <= 100 for sequence in whole)
    cut = {
        replace(request, generated=first_tokens(sequence, 60)): sequence
        for request, sequence in zip(requests, whole, strict=True)
        # An engine leaves no sequence between the end of a turn and its answer.
        if sequence.loss_mask[59] and not any(stop in text(sequence.token_ids[59:60]) for stop in params.stop)
    }
    assert len(cut) > 8
    assert all(sum(request.generated.loss_mask) < 50 for request in cut)
    assert_same(run(engine_of(), list(cut), params, three_more), list(cut.values()))


def first_tokens(sequence: FinishedSequence, length: int) -> GeneratedTokens:
    """What another engine would have left of it."""
    return GeneratedTokens(
        token_ids=sequence.token_ids[:length],
        logprobs=sequence.logprobs[:length],
        processed_logprobs=sequence.processed_logprobs[:length],
        loss_mask=sequence.loss_mask[:length],
    )


def test_an_answer_fills_the_room_but_for_one_token_or_is_left_out() -> None:
    params = replace(PARAMS, max_tokens=10, eos_token_ids=(), stop=tuple("abcdefgh0123<>/="))
    request = make_requests(num_prompts=1, group_size=1)
    for length in (8, 9):
        (sequence,) = run(engine_of(), request, params, lambda sequence, stop, n=length: (5,) * n)
        assert sequence.loss_mask == ((True, *(False,) * 8, True) if length == 8 else (True,))
        assert sequence.finish_reason == "length"


def test_stop_strings_end_a_sequence_of_one_turn() -> None:
    plain = run(engine_of(), make_requests(), replace(PARAMS, stop=()), None)
    for stopped, whole in zip(run(engine_of(), make_requests(), next_turn=None), plain, strict=True):
        length = next(
            (n for n in range(1, len(whole.token_ids) + 1) if any(s in text(whole.token_ids[:n]) for s in STOP)),
            len(whole.token_ids),
        )
        assert stopped.token_ids == whole.token_ids[:length]
        has_stop = any(s in text(stopped.token_ids) for s in STOP)
        assert stopped.finish_reason == ("stop" if has_stop else whole.finish_reason)


def test_min_tokens_hold_stop_strings_back() -> None:
    params = replace(PARAMS, stop=("a", "b", "c", "d", "0"), min_tokens=10)
    lengths = [len(sequence.token_ids) for sequence in run(engine_of(), make_requests(group_size=8), params, None)]
    assert min(lengths) == 11


def test_an_eos_may_end_a_turn_that_is_answered() -> None:
    def greet(sequence: GeneratedTokens, stop: str | None) -> tuple[int, ...]:
        return (9, 9) if stop is None and len(turn_starts(sequence.loss_mask)) < 3 else ()

    finished = run(engine_of(), make_requests(), replace(PARAMS, stop=()), greet)
    assert any(len(turn_starts(sequence.loss_mask)) == 3 for sequence in finished)
    for sequence in finished:
        for turn in turns(sequence)[:-1]:
            assert turn[-3:] == (EOS, 9, 9)


def test_sequences_with_and_without_turns_run_side_by_side() -> None:
    requests, engine = make_requests(), engine_of()
    separate = in_order(run(engine, requests[:9]) + run(engine, requests[9:], replace(PARAMS, stop=()), None))
    engine.add(requests[:9], PARAMS, answer)
    engine.add(requests[9:], replace(PARAMS, stop=()))
    assert_same(in_order(drain(engine)), separate)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="need a tokenizer"):
        TorchEngine(build()).add(make_requests(), PARAMS)
    engine = engine_of()
    with pytest.raises(InvalidInput, match="vocabulary"):
        run(engine, make_requests(), PARAMS, lambda sequence, stop: (VOCAB,))
    engine.abort()
    assert engine.num_running == 0


def test_an_inserted_eos_does_not_complete_a_resumed_sequence() -> None:
    (request,) = make_requests(num_prompts=1, group_size=1)
    known = GeneratedTokens(
        token_ids=(3, EOS), logprobs=(-1.0, 0.0), processed_logprobs=(-1.0, 0.0), loss_mask=(True, False)
    )
    (sequence,) = run(engine_of(), [replace(request, generated=known)])
    assert sequence.token_ids[:2] == (3, EOS)
    assert len(sequence.token_ids) > 2


def test_long_answers_are_computed_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = make_requests()
    expected = run(engine_of(), requests)
    monkeypatch.setattr("shared.inference.prefix_computing.PASS_TOKENS", 4)
    assert_same(run(engine_of(), requests), expected)


def test_positions_beyond_the_prompt_go_on_with_the_same_draws() -> None:
    """An inserted token takes a position, so that the tokens after it do not move when it does."""
    (request,) = make_requests(num_prompts=1, group_size=1)
    params = replace(PARAMS, stop=(), eos_token_ids=())
    torch.manual_seed(0)
    (plain,) = run(engine_of(), [request], params, None)
    cut = 7
    known = GeneratedTokens(
        token_ids=plain.token_ids[:cut],
        logprobs=plain.logprobs[:cut],
        processed_logprobs=plain.logprobs[:cut],
        loss_mask=(True,) * 3 + (False,) * (cut - 3),
    )
    (resumed,) = run(engine_of(), [replace(request, generated=known)], params, None)
    assert resumed.token_ids == plain.token_ids
