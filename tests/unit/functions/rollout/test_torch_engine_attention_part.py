"""Attention in parts: merged by their normalisers they are the whole."""

import torch

from functions.rollout.torch_engine.attention_part import Hidden, attend_part, attend_whole, merge

NUM_PRODUCTS, HEADS, QUERIES, KEYS, SIZE = 3, 2, 5, 11, 8


def tensors(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(NUM_PRODUCTS, HEADS, length, SIZE) for length in (QUERIES, KEYS, KEYS)]
    queries, keys, values = (2 * torch.randn(shape, generator=generator) for shape in shapes)
    return queries, keys, values


def exact(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = queries.double() @ keys.double().transpose(-1, -2)
    return (scores.softmax(-1) @ values.double()).float(), scores.logsumexp(-1).float()


def test_a_part_is_the_softmax_over_it_with_its_normaliser() -> None:
    queries, keys, values = tensors()
    output, normaliser = attend_part(queries, keys, values, None)
    expected, its_normaliser = exact(queries, keys, values)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normaliser, its_normaliser, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(attend_whole(queries, keys, values, None), expected, rtol=1e-5, atol=1e-5)


def test_two_parts_are_the_whole() -> None:
    queries, keys, values = tensors()
    for cut in range(1, KEYS):
        one = attend_part(queries, keys[:, :, :cut], values[:, :, :cut], None)
        other = attend_part(queries, keys[:, :, cut:], values[:, :, cut:], None)
        merged = merge(one[0], one[1][..., None], other[0], other[1][..., None])
        torch.testing.assert_close(merged, exact(queries, keys, values)[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            torch.logaddexp(one[1], other[1]), exact(queries, keys, values)[1], rtol=1e-5, atol=1e-5
        )


def test_what_is_hidden_has_no_part_in_it() -> None:
    queries, keys, values = tensors()
    hidden = torch.zeros(NUM_PRODUCTS, 1, 1, KEYS, dtype=torch.bool)
    hidden[:, :, :, 6:] = True
    output, normaliser = attend_part(queries, keys, values, Hidden.where(hidden))
    expected, its_normaliser = exact(queries, keys[:, :, :6], values[:, :, :6])
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normaliser, its_normaliser, rtol=1e-5, atol=1e-5)


def test_a_part_in_which_nothing_is_seen_weighs_nothing() -> None:
    queries, keys, values = tensors()
    hidden = torch.zeros(NUM_PRODUCTS, 1, QUERIES, KEYS, dtype=torch.bool)
    hidden[1, :, 2] = True
    output, normaliser = attend_part(queries, keys, values, Hidden.where(hidden, maybe_everything=True))
    assert (normaliser[1, :, 2] == -torch.inf).all()
    assert torch.isfinite(output).all()
    other, its_normaliser = attend_part(*tensors(1), None)
    merged = merge(other, its_normaliser[..., None], output, normaliser[..., None])
    assert torch.equal(merged[1, :, 2], other[1, :, 2])
    assert not torch.equal(merged[1, :, 1], other[1, :, 1])
