"""Keys and values of prefixes: those of the model's own cache, and every common token computed once."""

from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from shared.inference import prefix_computing
from shared.inference.decoder import Decoder, decoder_for
from shared.inference.prefix_computing import KnownPrefixes, compute_prefixes, compute_segments, compute_tree
from shared.inference.prefix_kv import PrefixKv
from shared.inference.prefix_tree import Sharing, grow
from tests.unit.functions.rollout.engine_runs import DIRECT, GENERIC, build, llama, mistral_with_window

ANY = Sharing(min_tokens=1, block_tokens=1)
A, B, C = (3, 4, 5, 6, 7, 8, 9), (3, 4, 5, 10, 11, 12, 13, 14, 15, 16), (7,)
PREFIXES = [A, B, A, C, (*A, 5, 6), (3, 4)]


def expected(model: PreTrainedModel, prefix: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """From transformers' own cache."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        layers = model(input_ids=torch.tensor([prefix]), use_cache=True).past_key_values.layers
    return torch.cat([layer.keys for layer in layers]), torch.cat([layer.values for layer in layers])


def check(model: PreTrainedModel, prefixes: list[tuple[int, ...]], computed: list[PrefixKv]) -> None:
    for prefix, kv in zip(prefixes, computed, strict=True):
        keys, values = expected(model, prefix)
        assert kv.token_ids == prefix
        # A cache of sliding windows keeps the last tokens only.
        torch.testing.assert_close(kv.keys[:, :, -keys.shape[2] :], keys, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(kv.values[:, :, -keys.shape[2] :], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sharing", [ANY, Sharing(min_tokens=4, block_tokens=2), Sharing()])
@pytest.mark.parametrize("family", DIRECT + GENERIC)
def test_they_are_those_of_the_models_own_cache(family, sharing: Sharing) -> None:
    computed = compute_prefixes(decoder_for(build(family)), PREFIXES, sharing=sharing)
    check(build(family), PREFIXES, computed)
    assert computed[0] is computed[2]


@pytest.mark.parametrize("family", [llama, mistral_with_window])
@pytest.mark.parametrize("known", [(A,), (A[:4], B[:5]), ((*A, 1), C, B)])
def test_what_is_known_is_not_computed_again(family, known: tuple[tuple[int, ...], ...]) -> None:
    decoder = decoder_for(build(family))
    held = compute_prefixes(decoder, known)
    computed = compute_prefixes(decoder, PREFIXES, held, ANY)
    check(build(family), PREFIXES, computed)
    # Taken from what is known, not made anew: what is there shows in the result.
    changed = [replace(prefix, keys=prefix.keys + 1) for prefix in held]
    again = compute_prefixes(decoder, [known[0]], changed, ANY)
    assert torch.equal(again[0].keys, changed[0].keys)


def num_computed(decoder: Decoder, prefixes: list[tuple[int, ...]], known: list[PrefixKv]) -> int:
    segments, _ = grow(prefixes, ANY)
    return compute_segments(decoder, segments, KnownPrefixes(known))


def test_common_tokens_are_computed_once() -> None:
    decoder = decoder_for(build())
    assert num_computed(decoder, [A, A, A], []) == len(A)
    assert num_computed(decoder, PREFIXES, []) == len(A) + len(B) - 3 + len(C) + 2
    assert num_computed(decoder, PREFIXES, compute_prefixes(decoder, [A])) == len(B) - 3 + len(C) + 2
    assert num_computed(decoder, PREFIXES, compute_prefixes(decoder, PREFIXES)) == 0


@pytest.mark.parametrize("known", [(), (A[:4], B[:5])])
def test_a_tree_holds_what_prefixes_share_once(known: tuple[tuple[int, ...], ...]) -> None:
    decoder = decoder_for(build())
    held, _ = compute_tree(decoder, known, sharing=ANY)
    tree, num_computed = compute_tree(decoder, PREFIXES, held, ANY)
    assert num_computed == len(A) + len(B) - 3 + len(C) + 2 - (4 + 2 if known else 0)
    for prefix, alone in zip(tree, compute_prefixes(decoder, PREFIXES, sharing=ANY), strict=True):
        assert (prefix.token_ids, prefix.layout) == (alone.token_ids, alone.layout)
        for start in range(len(prefix.token_ids)):
            for end in range(start + 1, len(prefix.token_ids) + 1):
                for kv, own in zip(prefix.between(start, end), alone.between(start, end), strict=True):
                    torch.testing.assert_close(kv, own, rtol=1e-5, atol=1e-5)
    memory = {prefix.between(0, 2)[0].untyped_storage().data_ptr() for prefix in tree if len(prefix.token_ids) > 1}
    assert len(memory) == 1


@pytest.mark.parametrize("budget", [1, 8, 12])
def test_passes_keep_to_the_token_budget(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(decoder: Decoder, tasks: list) -> None:
        passes.append((len(tasks), max(task.num_new for task in tasks)))
        run(decoder, tasks)

    run = prefix_computing._run
    monkeypatch.setattr(prefix_computing, "PASS_TOKENS", budget)
    monkeypatch.setattr(prefix_computing, "_run", counted)
    check(build(), PREFIXES, compute_prefixes(decoder_for(build()), PREFIXES, sharing=ANY))
    assert all(count * longest <= budget or count == 1 for count, longest in passes)
    assert any(count > 1 for count, _ in passes) == (budget > 1)


def test_an_empty_prefix_has_keys_of_no_token() -> None:
    decoder = decoder_for(build())
    (empty,) = compute_prefixes(decoder, [()])
    assert empty.keys.shape == empty.values.shape == (2, 2, 0, 8)
    assert empty.layout == decoder.layout


def test_a_layout_says_what_makes_kv_exchangeable() -> None:
    layout = decoder_for(build().to(torch.bfloat16)).layout
    assert layout.name == "l2-k2-d8-bfloat16"
    assert layout.bytes_per_token == 2 * 2 * 2 * 8 * 2
    assert layout != decoder_for(build()).layout
