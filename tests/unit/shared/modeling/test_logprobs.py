"""The learner's and the engine's logprobs: value, gradient, temperature and precision."""

import pytest
import torch

from shared.modeling import logprobs
from shared.modeling.logprobs import entropy, token_logprobs


def _case(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(3, 5, 11, generator=generator)).to(dtype)
    return logits, torch.randint(11, (3, 5), generator=generator)


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.5])
def test_value_is_the_log_softmax_of_tempered_logits(temperature: float) -> None:
    logits, ids = _case()
    expected = torch.log_softmax(logits.double() / temperature, -1).gather(-1, ids[..., None])[..., 0]
    result = token_logprobs(logits, ids, temperature)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("block_elements", [1 << 24, 22, 1])
def test_gradient_matches_autograd(temperature: float, block_elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "_BLOCK_ELEMENTS", block_elements)
    logits, ids = _case()
    weights = torch.linspace(-1, 2, ids.numel()).reshape(ids.shape)
    ours, plain = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    (token_logprobs(ours, ids, temperature) * weights).sum().backward()
    reference = torch.log_softmax(plain / temperature, -1).gather(-1, ids[..., None])[..., 0]
    (reference * weights).sum().backward()
    torch.testing.assert_close(ours.grad, plain.grad, rtol=1e-5, atol=1e-6)


def test_half_precision_logits_are_normalised_in_float32() -> None:
    logits, ids = _case(torch.bfloat16)
    leaf = logits.clone().requires_grad_()
    result = token_logprobs(leaf, ids)
    torch.testing.assert_close(result, token_logprobs(logits.float(), ids), rtol=0, atol=1e-6)
    result.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.bfloat16


def test_logits_far_from_zero_stay_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 1e4]])
    torch.testing.assert_close(token_logprobs(logits, torch.tensor([0])), torch.tensor([-0.6931472]))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_that_is_not_positive_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        token_logprobs(*_case(), temperature)


def test_shapes_must_fit() -> None:
    logits, ids = _case()
    with pytest.raises(ValueError, match="do not fit"):
        token_logprobs(logits, ids[:2])


def test_entropy_of_known_distributions() -> None:
    uniform = torch.zeros(2, 8)
    torch.testing.assert_close(entropy(uniform), torch.full((2,), 2.0794415))
    logits, _ = _case()
    expected = torch.distributions.Categorical(logits=logits / 0.5).entropy()
    torch.testing.assert_close(entropy(logits, 0.5), expected, rtol=1e-5, atol=1e-5)
