"""Logprobs of the policy as it stands, before the step's first update.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from functions.learner.rows import TrainRow
from shared.training.batching import MiniBatch, pack_micro_batches
from shared.training.forward import TrainedLogits, completion_logprobs


@torch.no_grad()
def policy_logprobs(
    logits_of: TrainedLogits, rows: Sequence[TrainRow], plan: Sequence[MiniBatch], temperature: float
) -> Tensor:
    """Of the sampled tokens of all rows in the plan, 0 elsewhere. [B, T] on the CPU"""
    logprobs = torch.zeros(len(rows), max(row.num_tokens for row in rows))
    for indices in (micro_batch for mini_batch in plan for micro_batch in mini_batch):
        part = completion_logprobs(logits_of, [rows[index] for index in indices], temperature)
        logprobs[indices, : part.shape[1]] = part.cpu()
    return logprobs


def logprobs_of_all(
    logits_of: TrainedLogits,
    rows: Sequence[TrainRow],
    max_token_len: int,
    temperature: float,
    *,
    share_prompts: bool,
) -> Tensor:
    """Of all rows, also of those that no update reads: rewards may depend on them. [B, T] on the CPU"""
    plan = pack_micro_batches(rows, range(len(rows)), max_token_len, share_prompts=share_prompts)
    return policy_logprobs(logits_of, rows, [plan], temperature)
