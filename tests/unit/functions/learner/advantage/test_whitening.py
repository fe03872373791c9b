import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from functions.learner.advantage.whitening import VARIANCE_EPSILON, whiten


@given(seed=st.integers(0, 2**32 - 1))
def test_trained_tokens_have_mean_zero_and_deviation_one_and_no_other_is_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 5)), int(rng.integers(2, 6)))
    trained = torch.from_numpy(rng.random(shape) < 0.7)
    trained[:2, 0] = True
    values = torch.from_numpy(rng.normal(5.0, 3.0, shape))

    whitened = whiten(values, trained)

    assert whitened[trained].mean().item() == pytest.approx(0.0, abs=1e-12)
    variance = values[trained].var().item()
    assert whitened[trained].var().item() == pytest.approx(variance / (variance + VARIANCE_EPSILON), rel=1e-9)
    assert not whitened[~trained].any()
    assert torch.equal(whiten(torch.where(trained, values, torch.nan), trained), whitened)


@pytest.mark.parametrize("trained", [[False, False], [True, False], [True, True]])
def test_equal_values_a_single_one_or_none_give_zero(trained: list[bool]) -> None:
    assert whiten(torch.tensor([[0.1, 0.1]]), torch.tensor([trained])).tolist() == [[0.0, 0.0]]
