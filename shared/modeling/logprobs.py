"""Log-probabilities and entropy of next-token distributions.

Shapes: logits `[..., V]`, token ids `[...]`; V = vocabulary, N = flattened rows.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Rows are processed in blocks of about this many float32 values (64 MiB), so that half-precision logits of a
# large vocabulary are never held as a whole in float32.
_BLOCK_ELEMENTS = 1 << 24


def token_logprobs(logits: Tensor, token_ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability of `token_ids` `[...]` under `softmax(logits / temperature)`, float32 `[...]`.

    Differentiable with respect to `logits` `[..., V]`. Beyond the logits themselves only one number per row
    is kept for the backward pass, and the backward pass allocates only the gradient.

    Raises ValueError when the temperature is not positive or the shapes do not fit.
    """
    if not temperature > 0.0:
        raise ValueError(f"temperature must be positive to define logprobs, got {temperature}")
    if logits.shape[:-1] != token_ids.shape:
        raise ValueError(f"token_ids {tuple(token_ids.shape)} do not fit logits {tuple(logits.shape)}")
    flat: Tensor = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]  # torch leaves apply untyped
        logits.reshape(-1, logits.shape[-1]), token_ids.reshape(-1), temperature
    )
    return flat.reshape(token_ids.shape)


def entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Shannon entropy in nats of `softmax(logits / temperature)`, float32 `[...]`; logits must be finite."""
    scaled = logits.float() / temperature
    return scaled.logsumexp(-1) - (scaled.softmax(-1) * scaled).sum(-1)


class _TokenLogprobs(torch.autograd.Function):
    """`log p(id) = x[id] - logsumexp(x)`, x = logits / T; its gradient is `(onehot - softmax(x)) / T`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, token_ids: Tensor, temperature: float) -> Tensor:
        selected = logits.gather(-1, token_ids.unsqueeze(-1)).float() / temperature
        log_normaliser = selected.new_empty(selected.shape)
        result = torch.empty_like(selected)
        for block in _blocks(logits):
            scaled = logits[block].float() / temperature
            # Taken relative to the maximum, so that large logits lose no digits of a small logprob.
            peak = scaled.amax(-1, keepdim=True)
            log_sum = (scaled - peak).exp_().sum(-1, keepdim=True).log_()
            log_normaliser[block] = peak + log_sum
            result[block] = selected[block] - peak - log_sum
        ctx.save_for_backward(logits, token_ids, log_normaliser)
        ctx.temperature = temperature
        return result.squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:
        logits, token_ids, log_normaliser = ctx.saved_tensors
        upstream = grad_outputs[0].unsqueeze(-1) / ctx.temperature
        grad = torch.empty_like(logits)
        for block in _blocks(logits):
            probs = (logits[block].float() / ctx.temperature - log_normaliser[block]).exp_()
            probs.mul_(-upstream[block]).scatter_add_(-1, token_ids[block].unsqueeze(-1), upstream[block])
            grad[block] = probs
        return grad, None, None


def _blocks(logits: Tensor) -> Iterator[slice]:
    rows = max(1, _BLOCK_ELEMENTS // logits.shape[-1])
    for start in range(0, logits.shape[0], rows):
        yield slice(start, start + rows)
