import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.learner import LossAggregation
from shared.training.aggregation import LossDenominators, aggregate
from shared.training.errors import InvalidTrainingConfig

MODES: tuple[LossAggregation, ...] = (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)
LONGEST = 9
SEEDS = st.integers(0, 2**32 - 1)
GARBAGE = np.array([1e6, np.inf, -np.inf, np.nan])


def naive(values: list[list[float]], mask: list[list[bool]], mode: LossAggregation) -> float:
    """By loops over sequences, in Python's float64."""
    trained = [[v for v, m in zip(*row, strict=True) if m] for row in zip(values, mask, strict=True)]
    trained = [row for row in trained if row]
    if not trained:
        return 0.0
    if mode == "token-mean":
        return sum(map(sum, trained)) / sum(map(len, trained))
    if mode == "seq-mean-token-sum":
        return sum(map(sum, trained)) / len(trained)
    if mode == "seq-mean-token-sum-norm":
        return sum(map(sum, trained)) / len(trained) / LONGEST
    return sum(sum(row) / len(row) for row in trained) / len(trained)


def random_values(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values [B, T] in float64, mask, and the same values with garbage at every masked position."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 7)))
    values, mask = torch.from_numpy(rng.normal(size=shape)), torch.from_numpy(rng.random(shape) < 0.6)
    return values, mask, torch.where(mask, values, torch.from_numpy(rng.choice(GARBAGE, shape)))


@pytest.mark.parametrize("mode", MODES)
@given(seed=SEEDS)
def test_agrees_with_loops_over_sequences_whatever_stands_at_masked_positions(mode: LossAggregation, seed: int) -> None:
    values, mask, with_garbage = random_values(seed)

    result = aggregate(with_garbage, mask, mode, LossDenominators.of(mask, LONGEST))

    assert result.item() == pytest.approx(naive(values.tolist(), mask.tolist(), mode), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
@given(seed=SEEDS)
def test_garbage_gets_no_gradient_and_spoils_none(mode: LossAggregation, seed: int) -> None:
    values, mask, with_garbage = random_values(seed)

    for leaf in (values.requires_grad_(), with_garbage.requires_grad_()):
        aggregate(leaf, mask, mode, LossDenominators.of(mask, LONGEST)).backward()

    assert torch.equal(with_garbage.grad, values.grad)
    assert not with_garbage.grad[~mask].any()


@pytest.mark.parametrize("mode", MODES)
@given(seed=SEEDS, cut=st.integers(0, 5))
def test_parts_of_a_batch_add_up_to_the_whole(mode: LossAggregation, seed: int, cut: int) -> None:
    values, mask, _ = random_values(seed)
    denominators = LossDenominators.of(mask, LONGEST)

    parts = [aggregate(values[rows], mask[rows], mode, denominators) for rows in (slice(None, cut), slice(cut, None))]

    assert sum(parts).item() == pytest.approx(aggregate(values, mask, mode, denominators).item(), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_trained_token_the_result_is_zero_and_has_a_graph(mode: LossAggregation) -> None:
    values = torch.full((2, 3), torch.nan, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)

    result = aggregate(values, mask, mode, LossDenominators.of(mask, LONGEST))
    result.backward()

    assert result.item() == 0.0
    assert torch.equal(values.grad, torch.zeros(2, 3))


def test_denominators_count_trained_tokens_and_rows_that_have_any() -> None:
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)

    assert LossDenominators.of(mask) == LossDenominators(num_tokens=3, num_sequences=2)


def test_a_constant_normaliser_has_to_be_given() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)

    with pytest.raises(InvalidTrainingConfig, match="seq-mean-token-sum-norm"):
        aggregate(torch.zeros(1, 2), mask, "seq-mean-token-sum-norm", LossDenominators.of(mask))
