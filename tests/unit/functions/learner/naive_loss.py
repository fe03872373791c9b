"""The loss of a mini-batch as the papers print it: float64, row by row and token by token, nothing shared with ours."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.loss_config import LossConfig
from functions.learner.rows import TrainRow


def naive_loss(
    model: PreTrainedModel,
    rows: Sequence[TrainRow],
    advantages: Tensor,
    old: Tensor | None,
    config: LearnerConfig,
) -> Tensor:
    """`advantages` and `old` logprobs `[B, T]`; without old ones the model's own, detached."""
    policy_terms, entropy_terms, kl_terms = [], [], []
    for number, row in enumerate(rows):
        logprobs, entropies = naive_logprobs(model, row, config.temperature)
        trained = np.flatnonzero(row.loss_mask)
        olds = [logprob.item() for logprob in logprobs] if old is None else old[number, trained].tolist()
        policy_terms.append(policy_row(row, logprobs, olds, advantages[number, trained].tolist(), config.loss))
        entropy_terms.append(entropies)
        kl_terms.append(kl_row(row, logprobs, config.loss))
    loss = naive_mean(policy_terms, config.loss)
    loss = loss - config.loss.entropy_coeff * naive_mean(entropy_terms, config.loss)
    if config.loss.kl_loss_type is not None:
        loss = loss + config.loss.kl_loss_coef * naive_mean(kl_terms, config.loss)
    return loss


def naive_logprobs(model: PreTrainedModel, row: TrainRow, temperature: float) -> tuple[list[Tensor], list[Tensor]]:
    """Logprob and entropy of every trained token."""
    sequence = torch.from_numpy(np.concatenate([row.prompt_token_ids, row.completion_token_ids]))
    logits = model(input_ids=sequence[None]).logits[0]
    logprobs, entropies = [], []
    for position in np.flatnonzero(row.loss_mask):
        probs = torch.softmax(logits[row.prompt_token_ids.size - 1 + position] / temperature, -1)
        logprobs.append(probs[row.completion_token_ids[position]].log())
        entropies.append(-(probs * probs.log()).sum())
    return logprobs, entropies


def policy_row(
    row: TrainRow, logprobs: list[Tensor], olds: list[float], advantages: list[float], config: LossConfig
) -> list[Tensor]:
    """The policy loss of a completion's trained tokens."""
    if not logprobs:
        return []
    log_ratios = [logprob - old for logprob, old in zip(logprobs, olds, strict=True)]
    of_sequence = torch.stack(log_ratios).mean().exp().item()
    rollout = row.rollout_logprobs[row.loss_mask].astype(float).tolist()
    gaps = [old - engine for old, engine in zip(olds, rollout, strict=True)]
    losses = []
    for logprob, log_ratio, gap, advantage in zip(logprobs, log_ratios, gaps, advantages, strict=True):
        low, high = 1 - config.clip_ratio_low, 1 + config.clip_ratio_high
        if config.loss_mode == "cispo":
            loss = -log_ratio.exp().clamp(low, high).item() * advantage * logprob
        else:
            # GSPO in its token form: the value is the sequence's, the gradient the token's own.
            own = (logprob - logprob.item()).exp()
            ratio = of_sequence * own if config.loss_mode == "gspo" else log_ratio.exp()
            loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(low, high))
            if config.clip_ratio_c is not None and advantage < 0:
                loss = loss.clamp(max=-advantage * config.clip_ratio_c)
        if config.rollout_is is not None:
            weight = math.exp(gap if config.rollout_is == "token" else sum(gaps))
            loss = loss * min(weight, config.rollout_is_threshold)
        losses.append(loss)
    return losses


def kl_row(row: TrainRow, logprobs: list[Tensor], config: LossConfig) -> list[Tensor]:
    """The KL estimate of a completion's trained tokens."""
    if row.reference_logprobs is None:
        return []
    terms = []
    for logprob, reference in zip(logprobs, row.reference_logprobs[row.loss_mask].astype(float), strict=True):
        x = logprob - float(reference)
        terms.append({"kl": x, "mse": x**2 / 2, "low_var_kl": (-x).exp() - 1 + x}[config.kl_loss_type or "kl"])
    return terms


def naive_mean(terms: list[list[Tensor]], config: LossConfig) -> Tensor:
    """Token values to one number."""
    rows = [torch.stack(row) for row in terms if row]
    if config.loss_agg_mode == "token-mean":
        return torch.cat(rows).mean()
    if config.loss_agg_mode == "seq-mean-token-mean":
        return torch.stack([row.mean() for row in rows]).mean()
    total = torch.stack([row.sum() for row in rows]).mean()
    return total / config.max_completion_tokens if config.loss_agg_mode == "seq-mean-token-sum-norm" else total
