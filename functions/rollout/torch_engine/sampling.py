"""From logits and uniform numbers to tokens and their logprobs.

Shapes: B = rows, V = vocabulary.
"""

import torch
from torch import Tensor

from functions.rollout.engine import SamplingParams

_FIRST_LOOK = 1024
"""Of the most probable tokens, so many are ranked before all are."""


def sample(
    logits: Tensor, draws: Tensor, num_generated: Tensor, params: SamplingParams, shortest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One token per row by inverting the cumulative distribution at `draws` `[B]`, uniform in [0, 1).

    `num_generated` `[B]` counts the tokens before this one, for `min_tokens`; `shortest` is the least of them. Returns
    token ids `[B]` int64, their logprobs `[B]` float32 under the full softmax at the temperature (at 1 when it is 0),
    and their processed logprobs `[B]` float32 under the distribution that they were drawn from.

    Probabilities are float32, each right to a few units in its last place like the logits that they come from. Their
    cumulative sum is float64: in float32, over a large vocabulary, it would round rare tokens away.
    """
    greedy = params.temperature == 0.0
    tempered = logits.float() if greedy or params.temperature == 1.0 else logits.float() / params.temperature
    allowed = _forbid_eos(tempered, num_generated, params, shortest)
    if greedy:
        token_ids = allowed.argmax(-1)
        logprobs = _logprobs(tempered, tempered.softmax(-1), token_ids)
        return token_ids, logprobs, torch.zeros_like(logprobs)
    probs = allowed.softmax(-1)
    kept = _restrict(probs, params)
    token_ids = _invert(kept, draws)
    if allowed is tempered:
        logprobs = _logprobs(tempered, probs, token_ids)
        if kept is probs:
            return token_ids, logprobs, logprobs
    else:
        logprobs = _logprobs(tempered, tempered.softmax(-1), token_ids)
    return token_ids, logprobs, (_of_tokens(kept, token_ids) / kept.sum(-1)).log()


def _logprobs(logits: Tensor, probs: Tensor, token_ids: Tensor) -> Tensor:
    """Of `token_ids` `[B]` under `softmax(logits)`, which is `probs`.

    Taken relative to the largest, whose probability is known best, so that a rare token's is not 0 and large logits
    lose no digits.
    """
    return _of_tokens(logits, token_ids) - logits.amax(-1) + probs.amax(-1).log()


def _of_tokens(values: Tensor, token_ids: Tensor) -> Tensor:
    """`values` `[B, V]` of one token per row, `[B]`."""
    return values.gather(-1, token_ids[:, None]).squeeze(-1)


def _forbid_eos(logits: Tensor, num_generated: Tensor, params: SamplingParams, shortest: int) -> Tensor:
    """Removes the EOS tokens from rows that have fewer than `min_tokens`; the same tensor if there are none."""
    if not params.eos_token_ids or shortest >= params.min_tokens:
        return logits
    is_eos = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
    is_eos[list(params.eos_token_ids)] = True
    too_short = num_generated < params.min_tokens
    return logits.masked_fill(too_short[:, None] & is_eos, -torch.inf)


def _restrict(probs: Tensor, params: SamplingParams) -> Tensor:
    """Probabilities `[B, V]`, unnormalised, that are 0 outside top-k and, of what that leaves, top-p.

    Tokens as probable as the last one kept are kept too, so that no order among equals matters.
    """
    if 0 < params.top_k < probs.shape[-1]:
        smallest = probs.topk(params.top_k, dim=-1).values[:, -1:]
        probs = probs.masked_fill(probs < smallest, 0.0)
    if params.top_p < 1.0:
        probs = probs.masked_fill(probs < _least_of_top_p(probs, params.top_p), 0.0)
    return probs


def _least_of_top_p(probs: Tensor, top_p: float) -> Tensor:
    """The probability `[B, 1]` of the last of the most probable tokens that together reach `top_p` of the total.

    A few tokens nearly always reach it, so that the vocabulary is sorted only where they do not.
    """
    wanted = top_p * probs.sum(-1, keepdim=True, dtype=torch.float64)
    ranked = probs.topk(min(_FIRST_LOOK, probs.shape[-1]), dim=-1).values
    if bool((ranked.sum(-1, keepdim=True, dtype=torch.float64) < wanted).any()):
        ranked = probs.sort(dim=-1, descending=True).values
    mass_before = ranked.cumsum(-1, dtype=torch.float64) - ranked
    num_kept = (mass_before < wanted).sum(-1, keepdim=True)
    return ranked.gather(-1, num_kept - 1)


def _invert(probs: Tensor, draws: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds `draw * total`; never one of probability 0."""
    cumulative = probs.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1]
    # A draw just below 1 times the total can round up to the total itself, which no token exceeds.
    target = torch.minimum(draws * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target[:, None], right=True).squeeze(-1)
