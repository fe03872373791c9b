"""What sequences begin with alike is computed once and attended to once, and nobody can tell from the result."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from functions.rollout.engine import FinishedSequence, SequenceRequest
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.errors import InvalidInput
from shared.inference.decoder import decoder_for
from shared.inference.prefix_computing import compute_prefixes
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_tree import Sharing
from shared.modeling.randomness import address_seed
from shared.modeling.weights import state_dict_to_blob
from tests.unit.functions.rollout.engine_runs import (
    DIRECT,
    GENERIC,
    PARAMS,
    VOCAB,
    assert_same,
    build,
    drain,
    full_logprobs,
    generate,
    in_order,
    llama,
    make_requests,
    mistral_with_window,
)

ANY = Sharing(min_tokens=1, block_tokens=1)
NONE = Sharing(min_tokens=1024)
SYSTEM = tuple(3 + (7 * at) % 17 for at in range(12))
GROUP = 4


def engine_of(family: Callable = llama, sharing: Sharing = ANY) -> TorchEngine:
    return TorchEngine(build(family), sharing=sharing)


def requests_like(*prompts: tuple[int, ...], group: int = GROUP) -> list[SequenceRequest]:
    return [
        SequenceRequest(
            row_uid=f"r{row}",
            sample=sample,
            prompt_token_ids=prompt,
            seed=address_seed(5, "train", 0, 0, f"r{row}", sample),
        )
        for row, prompt in enumerate(prompts)
        for sample in range(group)
    ]


# Two with a beginning in common, of which one is the beginning of a third, and one that is alone with what it has.
PROMPTS = ((*SYSTEM, 4, 9), (*SYSTEM, 5, 8, 6, 7), (*SYSTEM, 4, 9, 10, 11, 12), (9, 9, 3))
REQUESTS = requests_like(*PROMPTS)


def num_segments(engine: TorchEngine) -> int:
    return sum(len(slab.segments) for slab in engine._context._shared.slabs)


@pytest.mark.parametrize("sharing", [ANY, Sharing(min_tokens=4, block_tokens=2)])
@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_logprobs_equal_a_full_forward_pass(family: Callable, sharing: Sharing) -> None:
    # In float64: transformers' own attention on a CPU is good to six digits.
    engine, reference = engine_of(family, sharing), build(family).double()
    engine.add(REQUESTS, PARAMS)
    # The beginning of all, that of two, what is left of those, and what is alone.
    assert num_segments(engine) == (5 if sharing is ANY else 2)
    finished = in_order(drain(engine))
    assert len(finished) == len(REQUESTS)
    for request, sequence in zip(REQUESTS, finished, strict=True):
        assert sequence.logprobs == pytest.approx(full_logprobs(reference, request, sequence), abs=1e-5)


@pytest.mark.parametrize("family", [llama, mistral_with_window])
def test_sharing_changes_nothing(family: Callable) -> None:
    for requests in (REQUESTS, make_requests()):
        engines = [engine_of(family, sharing) for sharing in (ANY, NONE)]
        shared, apart = (generate(engine, requests) for engine in engines)
        assert_same(shared, apart)
        alone = [done for request in requests[::5] for done in generate(engines[0], [request])]
        assert_same(in_order(alone), apart[::5])


def test_a_group_is_computed_once_and_common_beginnings_too() -> None:
    engine = engine_of()
    engine.add(REQUESTS, PARAMS)
    stats = engine.stats()
    # Of each prompt all but the last token, which is fed by the first step.
    assert stats.prefill_tokens == len(SYSTEM) + 1 + 3 + 3 + 2
    assert stats.prefill_tokens + stats.reused_tokens == sum(len(r.prompt_token_ids) - 1 for r in REQUESTS)
    assert stats.prefill_s > 0
    assert stats.num_running == len(REQUESTS)
    assert stats.context_tokens == sum(len(r.prompt_token_ids) - 1 for r in REQUESTS)
    again = engine.stats()
    assert (again.prefill_tokens, again.reused_tokens, again.prefill_s) == (0, 0, 0)
    alone = engine_of(sharing=NONE)
    alone.add(REQUESTS, PARAMS)
    # Equal prompts are computed once in any case.
    assert alone.stats().prefill_tokens == sum(len(prompt) - 1 for prompt in PROMPTS)


@pytest.mark.parametrize("num_first", [1, 2])
@pytest.mark.parametrize("sharing", [ANY, NONE])
def test_a_group_that_comes_in_parts_is_computed_once(sharing: Sharing, num_first: int) -> None:
    requests = requests_like(PROMPTS[0], group=8)
    whole = generate(engine_of(), requests)
    engine = engine_of(sharing=sharing)
    engine.add(requests[:num_first], PARAMS)
    finished = engine.step()
    assert engine.stats().prefill_tokens == len(PROMPTS[0]) - 1
    engine.add(requests[num_first:], PARAMS)
    assert engine.stats().prefill_tokens == 0
    assert_same(in_order(finished + drain(engine)), whole)


def test_what_nobody_shares_any_more_is_forgotten() -> None:
    engine = engine_of()
    engine.add(REQUESTS, replace(PARAMS, eos_token_ids=(2, 5, 9, 11, 14)))
    kept = [num_segments(engine)]
    while engine.num_running:
        engine.step()
        kept.append(num_segments(engine))
    assert kept == sorted(kept, reverse=True)
    assert len(set(kept)) > 3
    assert kept[-1] == 0


def test_rows_and_segments_may_leave_in_any_order() -> None:
    """Each aborted in turn, so that other rows and segments take their places, while the rest goes on."""
    whole = {(done.row_uid, done.sample): done for done in generate(engine_of(), REQUESTS)}
    for first in range(0, len(REQUESTS), 3):
        engine = engine_of()
        engine.add(REQUESTS, PARAMS)
        finished = engine.step()
        victims = {(r.row_uid, r.sample) for r in REQUESTS[first : first + 3]} | {("absent", 0)}
        partials = engine.abort(victims)
        assert {(partial.row_uid, partial.sample) for partial in partials} <= victims
        finished += drain(engine)
        left = [
            done for id, done in whole.items() if id not in victims or id in {(f.row_uid, f.sample) for f in finished}
        ]
        assert_same(in_order(finished), left)
        for partial in partials:
            assert partial.token_ids == whole[partial.row_uid, partial.sample].token_ids[:1]


def held_by(prompts: tuple[tuple[int, ...], ...], family: Callable = llama) -> list[PrefixKv]:
    return compute_prefixes(decoder_for(build(family)), prompts)


@pytest.mark.parametrize("sharing", [ANY, NONE])
@pytest.mark.parametrize("family", [llama, mistral_with_window])
@pytest.mark.parametrize("held", [PROMPTS, (SYSTEM,), (SYSTEM[:5], (*PROMPTS[3], 3, 3))])
def test_held_prefixes_change_nothing_but_the_work(
    held: tuple[tuple[int, ...], ...], family: Callable, sharing: Sharing
) -> None:
    cold, warm = engine_of(family, sharing), engine_of(family, sharing)
    warm.hold_prefixes(held_by(held, family))
    assert_same(generate(warm, REQUESTS), generate(cold, REQUESTS))
    computed, usual = warm.stats().prefill_tokens, cold.stats().prefill_tokens
    assert computed == 0 if held is PROMPTS else 0 < computed < usual
    warm.drop_prefixes()
    generate(warm, REQUESTS)
    assert warm.stats().prefill_tokens == usual


def test_held_prefixes_are_used_and_do_not_outlive_their_weights() -> None:
    engine = engine_of()
    before = generate(engine, REQUESTS)
    wrong = [replace(prefix, values=prefix.values + 1) for prefix in held_by(PROMPTS)]
    engine.hold_prefixes(wrong)
    assert [done.logprobs for done in generate(engine, REQUESTS)] != [done.logprobs for done in before]
    engine.load(state_dict_to_blob(build()))
    assert_same(generate(engine, REQUESTS), before)
    engine.hold_prefixes(wrong)
    engine.adapt(None)
    assert_same(generate(engine, REQUESTS), before)


def test_foreign_prefixes_are_refused() -> None:
    engine = engine_of()
    (good,) = held_by((SYSTEM,))
    bad = [
        replace(good, keys=good.keys.half(), values=good.values.half()),
        replace(good, token_ids=SYSTEM[:-1]),
        replace(good, values=good.values[:, :, 1:]),
        replace(good, keys=good.keys[:1], values=good.values[:1]),
    ]
    for prefix in bad:
        with pytest.raises(InvalidInput, match="do not fit"):
            engine.hold_prefixes([good, prefix])
    generate(engine, requests_like((*SYSTEM, 3)))
    assert engine.stats().prefill_tokens == len(SYSTEM)


@pytest.mark.parametrize("family", [llama, mistral_with_window])
@pytest.mark.parametrize("num_steps", [0, 1, 6])
def test_the_kv_of_a_sequence_is_that_of_its_tokens(family: Callable, num_steps: int) -> None:
    engine = engine_of(family)
    engine.add(REQUESTS, replace(PARAMS, eos_token_ids=()))
    for _ in range(num_steps):
        engine.step()
    for request in REQUESTS[::3]:
        kv = engine.kv_of(request.row_uid, request.sample)
        assert kv.token_ids[: len(request.prompt_token_ids)] == request.prompt_token_ids[: len(kv.token_ids)]
        assert len(kv.token_ids) == len(request.prompt_token_ids) + num_steps - 1
        (expected,) = held_by((kv.token_ids,), family)
        torch.testing.assert_close(kv.keys, expected.keys, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(kv.values, expected.values, rtol=1e-5, atol=1e-5)
    with pytest.raises(KeyError, match="does not run"):
        engine.kv_of("r0", GROUP)


@pytest.mark.parametrize("with_kv", [False, True])
@pytest.mark.parametrize("family", [llama, mistral_with_window])
def test_a_migrated_sequence_goes_on_with_or_without_its_kv(family: Callable, with_kv: bool) -> None:
    whole = generate(engine_of(family), REQUESTS)
    first, second = engine_of(family), engine_of(family)
    first.add(REQUESTS, PARAMS)
    finished: list[FinishedSequence] = [done for _ in range(6) for done in first.step()]
    done = {(sequence.row_uid, sequence.sample) for sequence in finished}
    left = [request for request in REQUESTS if (request.row_uid, request.sample) not in done]
    moved = {(request.row_uid, request.sample) for request in left[::2]}
    kv = [first.kv_of(*id) for id in sorted(moved)]
    partials = {(partial.row_uid, partial.sample): partial for partial in first.abort(moved)}
    assert partials.keys() == moved
    if with_kv:
        second.hold_prefixes(kv)
    second.add(
        [replace(r, generated=partials[r.row_uid, r.sample]) for r in left if (r.row_uid, r.sample) in moved], PARAMS
    )
    assert (second.stats().prefill_tokens == 0) == with_kv
    assert_same(in_order(finished + drain(first) + drain(second)), whole)


def test_sampled_tokens_follow_the_exact_distribution() -> None:
    """Chi-square of the first two tokens of many samples of one prompt, against the model's own probabilities."""
    prompt, num_samples = (*SYSTEM, 4), 3000
    finished = generate(
        engine_of(), requests_like(prompt, group=num_samples), replace(PARAMS, max_tokens=2, eos_token_ids=())
    )
    with torch.no_grad():
        pairs = torch.tensor([(*prompt, first) for first in range(VOCAB)])
        probs = build()(input_ids=pairs).logits.double().softmax(-1)
    first = probs[0, -2]
    second = first @ probs[:, -1]
    for position, exact in enumerate((first, second)):
        counts = torch.bincount(torch.tensor([done.token_ids[position] for done in finished]), minlength=VOCAB)
        expected = exact * num_samples
        common = expected > 5
        statistic = ((counts[common] - expected[common]) ** 2 / expected[common]).sum()
        degrees = int(common.sum()) - 1
        assert degrees > 8
        assert statistic < degrees + 5 * math.sqrt(2 * degrees)
