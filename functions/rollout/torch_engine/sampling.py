"""From logits and uniform numbers to tokens and their logprobs.

Shapes: B = rows, V = vocabulary.
"""

import torch
from torch import Tensor

from functions.rollout.engine import SamplingParams


def sample(
    logits: Tensor, draws: Tensor, num_generated: Tensor, params: SamplingParams
) -> tuple[Tensor, Tensor, Tensor]:
    """One token per row by inverting the cumulative distribution at `draws` `[B]`, uniform in [0, 1).

    `num_generated` `[B]` counts the tokens before this one, for `min_tokens`. Returns token ids `[B]` int64, their
    logprobs `[B]` float32 under the full softmax at the temperature (at 1 when it is 0), and their processed logprobs
    `[B]` float32 under the distribution that they were drawn from.

    The distribution is float64: in float32 the cumulative sum over a large vocabulary rounds rare tokens away.
    """
    greedy = params.temperature == 0.0
    tempered = logits.double() if greedy else logits.double() / params.temperature
    full = tempered.log_softmax(-1)
    allowed = _forbid_eos(full, num_generated, params)
    if greedy:
        token_ids = allowed.argmax(-1)
        logprobs = _of_tokens(full, token_ids).float()
        return token_ids, logprobs, torch.zeros_like(logprobs)
    probs = allowed.exp()
    kept = _restrict(probs, params)
    token_ids = _invert(kept, draws)
    logprobs = _of_tokens(full, token_ids).float()
    if kept is probs and allowed is full:
        return token_ids, logprobs, logprobs
    return token_ids, logprobs, (_of_tokens(kept, token_ids) / kept.sum(-1)).log().float()


def _of_tokens(values: Tensor, token_ids: Tensor) -> Tensor:
    """`values` `[B, V]` of one token per row, `[B]`."""
    return values.gather(-1, token_ids[:, None]).squeeze(-1)


def _forbid_eos(log_probs: Tensor, num_generated: Tensor, params: SamplingParams) -> Tensor:
    """Removes the EOS tokens from rows that have fewer than `min_tokens`, and normalises again."""
    if not params.min_tokens or not params.eos_token_ids or int(num_generated.min()) >= params.min_tokens:
        return log_probs
    is_eos = torch.zeros(log_probs.shape[-1], dtype=torch.bool, device=log_probs.device)
    is_eos[list(params.eos_token_ids)] = True
    too_short = num_generated < params.min_tokens
    return log_probs.masked_fill(too_short[:, None] & is_eos, -torch.inf).log_softmax(-1)


def _restrict(probs: Tensor, params: SamplingParams) -> Tensor:
    """Probabilities `[B, V]`, unnormalised, that are 0 outside top-k and, of what that leaves, top-p."""
    if 0 < params.top_k < probs.shape[-1]:
        smallest = probs.topk(params.top_k, dim=-1).values[:, -1:]
        probs = probs.masked_fill(probs < smallest, 0.0)
    if params.top_p < 1.0:
        ranked, order = probs.sort(dim=-1, descending=True, stable=True)
        mass_before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(mass_before >= params.top_p * ranked.sum(-1, keepdim=True), 0.0)
        probs = torch.zeros_like(probs).scatter_(-1, order, ranked)
    return probs


def _invert(probs: Tensor, draws: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds `draw * total`; never one of probability 0."""
    cumulative = probs.cumsum(-1)
    total = cumulative[:, -1]
    # A draw just below 1 times the total can round up to the total itself, which no token exceeds.
    target = torch.minimum(draws * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target[:, None], right=True).squeeze(-1)
