"""Sampling: the inverse of the exact cumulative distribution, restricted as asked."""

import math

import pytest
import torch

from functions.rollout.engine import SamplingParams
from functions.rollout.torch_engine import sampling

PARAMS = SamplingParams(temperature=1.0, max_tokens=8, eos_token_ids=(0,))
PROBS = torch.tensor([0.05, 0.4, 0.25, 0.1, 0.2])
LOGITS = PROBS.log()
NOTHING = torch.zeros(1, dtype=torch.int64)


def sample(logits: torch.Tensor, draws: torch.Tensor, num_generated: torch.Tensor, params: SamplingParams):
    return sampling.sample(logits, draws, num_generated, params, int(num_generated.min()))


def _params(**changes: float) -> SamplingParams:
    return SamplingParams(**({"temperature": 1.0, "max_tokens": 8, "eos_token_ids": (0,)} | changes))


def _frequencies(params: SamplingParams, num_draws: int = 20_000) -> torch.Tensor:
    """Evenly spread draws give every token its probability, to 1 / num_draws."""
    draws = (torch.arange(num_draws) + 0.5).double() / num_draws
    counts = torch.zeros(num_draws, dtype=torch.int64)
    token_ids, _, _ = sample(LOGITS.expand(num_draws, -1), draws, counts, params)
    return torch.bincount(token_ids, minlength=5) / num_draws


def test_a_draw_picks_the_token_whose_interval_it_is_in() -> None:
    draws = torch.tensor([0.0, 0.049, 0.051, 0.449, 0.451, 0.699, 0.701, 0.799, 0.801, 1 - 2**-53]).double()
    token_ids, logprobs, _ = sample(LOGITS.expand(10, -1), draws, NOTHING.expand(10), PARAMS)
    assert token_ids.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, LOGITS[token_ids])


def test_frequencies_follow_the_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, num_draws = 2 * torch.randn(40, generator=generator), 50_000
    draws = torch.rand(num_draws, dtype=torch.float64, generator=generator)
    token_ids, _, _ = sample(logits.expand(num_draws, -1), draws, NOTHING.expand(num_draws), PARAMS)
    expected = logits.double().softmax(-1) * num_draws
    chi_square = ((torch.bincount(token_ids, minlength=40) - expected) ** 2 / expected).sum()
    assert chi_square < 39 + 5 * math.sqrt(2 * 39)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [0.05, 0.4, 0.25, 0.1, 0.2]),
        ({"top_k": 2}, [0, 0.4 / 0.65, 0.25 / 0.65, 0, 0]),
        ({"top_k": 9}, [0.05, 0.4, 0.25, 0.1, 0.2]),
        ({"top_p": 0.64}, [0, 0.4 / 0.65, 0.25 / 0.65, 0, 0]),
        ({"top_p": 0.66}, [0, 0.4 / 0.85, 0.25 / 0.85, 0, 0.2 / 0.85]),
        ({"top_p": 0.01}, [0, 1, 0, 0, 0]),
        # of the three kept by top-k (0.85 in all), 0.4 / 0.85 = 0.47 is not enough and 0.76 is
        ({"top_k": 3, "top_p": 0.5}, [0, 0.4 / 0.65, 0.25 / 0.65, 0, 0]),
        ({"min_tokens": 1}, [0, 0.4 / 0.95, 0.25 / 0.95, 0.1 / 0.95, 0.2 / 0.95]),
        ({"temperature": 0.5}, [0.0025 / 0.275, 0.16 / 0.275, 0.0625 / 0.275, 0.01 / 0.275, 0.04 / 0.275]),
        ({"temperature": 0.0}, [0, 1, 0, 0, 0]),
    ],
)
def test_restrictions(changes: dict[str, float], expected: list[float]) -> None:
    expected_frequencies = torch.tensor(expected, dtype=torch.float32)
    torch.testing.assert_close(_frequencies(_params(**changes)), expected_frequencies, rtol=0, atol=2e-4)


def test_logprobs_ignore_restrictions_but_not_temperature() -> None:
    draw = torch.tensor([0.3]).double()
    restricted = _params(top_k=2, top_p=0.9, min_tokens=3, temperature=0.5)
    token_id, logprob, _ = sample(LOGITS[None], draw, NOTHING, restricted)
    assert token_id.item() == 1
    assert logprob.item() == pytest.approx(math.log(0.16 / 0.275), abs=1e-6)


def test_unrestricted_processed_logprobs_are_the_full_ones_bit_for_bit() -> None:
    logits, draws = torch.randn(500, 40, generator=torch.Generator().manual_seed(1)), torch.rand(500).double()
    for params in (_params(), _params(temperature=0.7), _params(top_p=1.0, top_k=0)):
        _, logprobs, processed = sample(logits, draws, NOTHING.expand(500), params)
        assert torch.equal(logprobs, processed)


@pytest.mark.parametrize(
    "changes",
    [
        {"top_k": 2},
        {"top_p": 0.64},
        {"top_k": 4, "top_p": 0.8, "temperature": 0.6},
        {"min_tokens": 1},
        {"top_k": 3, "min_tokens": 1},
    ],
)
def test_processed_logprobs_are_those_of_the_draw(changes: dict[str, float]) -> None:
    num_draws = 20_000
    draws = (torch.arange(num_draws) + 0.5).double() / num_draws
    token_ids, logprobs, processed = sample(
        LOGITS.expand(num_draws, -1), draws, NOTHING.expand(num_draws), _params(**changes)
    )
    drawn = {int(id): float(value) for id, value in zip(token_ids, processed, strict=True)}
    assert sum(math.exp(value) for value in drawn.values()) == pytest.approx(1.0, abs=1e-6)
    for id, value in drawn.items():
        assert math.exp(value) == pytest.approx(float((token_ids == id).float().mean()), abs=2e-4)
    assert (processed > logprobs).all()


def test_of_two_kept_tokens_the_processed_probabilities_sum_to_one() -> None:
    draws = torch.tensor([0.1, 0.9]).double()
    token_ids, logprobs, processed = sample(LOGITS.expand(2, -1), draws, NOTHING.expand(2), _params(top_k=2))
    assert token_ids.tolist() == [1, 2]
    assert processed.exp().tolist() == pytest.approx([0.4 / 0.65, 0.25 / 0.65], abs=1e-6)
    assert logprobs.exp().tolist() == pytest.approx([0.4, 0.25], abs=1e-6)


def test_a_greedy_token_is_certain() -> None:
    _, logprobs, processed = sample(LOGITS[None], torch.zeros(1).double(), NOTHING, _params(temperature=0.0))
    assert (processed.item(), logprobs.item()) == (0.0, pytest.approx(math.log(0.4)))


def test_min_tokens_hold_back_only_the_rows_that_are_too_short() -> None:
    logits = torch.tensor([9.0, 0.0, 0.0]).expand(3, -1)
    draws = torch.full((3,), 0.5, dtype=torch.float64)
    token_ids, _, _ = sample(logits, draws, torch.tensor([0, 1, 2]), _params(min_tokens=2))
    assert token_ids.tolist() == [2, 2, 0]


def test_a_certain_eos_can_be_held_back() -> None:
    token_id, logprob, _ = sample(
        torch.tensor([[2000.0, 0.0, 0.0]]), torch.zeros(1).double(), NOTHING, _params(min_tokens=1)
    )
    assert token_id.item() == 1
    assert logprob.item() == -2000.0


def test_impossible_tokens_are_never_drawn() -> None:
    """Also not by the largest draw, whose product with the total may round up to the total."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2000, 30, generator=generator)
    logits[:, 20:] = -torch.inf
    logits[:, :2] = -torch.inf
    for draw in (0.0, 1 - 2**-53):
        draws = torch.full((2000,), draw, dtype=torch.float64)
        token_ids, logprobs, _ = sample(logits, draws, NOTHING.expand(2000), PARAMS)
        assert token_ids.min() >= 2
        assert token_ids.max() <= 19
        assert torch.isfinite(logprobs).all()


def test_a_rare_token_of_a_large_vocabulary_keeps_its_probability() -> None:
    """In float32 the cumulative sum near 1 moves in steps of 6e-8 and this token would never be drawn."""
    logits = torch.full((1, 50_000), -40.0)
    logits[0, 0] = 0.0
    logits[0, -1] = math.log(1e-9)
    token_id, _, _ = sample(logits, torch.tensor([1 - 5e-10], dtype=torch.float64), NOTHING, PARAMS)
    assert token_id.item() == 49_999


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [0, 500])
def test_top_p_of_a_large_vocabulary_is_that_of_sorting_it(sharpness: float, top_k: int) -> None:
    """The most probable tokens reach it in a sharp distribution and do not in a flat one."""
    generator = torch.Generator().manual_seed(0)
    logits = sharpness * torch.randn(4, 5000, generator=generator)
    probs = logits.double().softmax(-1)
    kept = sampling._restrict(logits.softmax(-1), _params(top_p=0.9, top_k=top_k)) > 0
    for row in range(4):
        ranked, order = probs[row].sort(descending=True)
        ranked[top_k or 5000 :] = 0.0
        # What top-k leaves comes first.
        num_kept = int((ranked.cumsum(0) - ranked < 0.9 * ranked.sum())[: top_k or 5000].sum())
        assert set(kept[row].nonzero().flatten().tolist()) == set(order[:num_kept].tolist())


def test_tokens_as_probable_as_the_last_one_kept_are_kept() -> None:
    probs = torch.tensor([[0.3, 0.2, 0.1, 0.2, 0.2]])
    for changes in ({"top_p": 0.45}, {"top_k": 2}):
        assert (sampling._restrict(probs, _params(**changes)) > 0).tolist() == [[True, True, False, True, True]]
