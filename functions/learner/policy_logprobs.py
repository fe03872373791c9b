"""Logprobs of the policy as it stands, before the step's first update.

Shapes: B rows, T longest completion.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.ranks.group import ONE_RANK, Ranks
from functions.learner.ranks.rounds import Rounds
from functions.learner.rows import TrainRow
from shared.contracts.training_pass import DEFAULT_PASS, TrainingPass
from shared.training.batching import MicroBatch, MiniBatch, pack_micro_batches
from shared.training.forward import TrainedLogits, completion_logprobs, trained_logits
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import sort_rows
from shared.training.scoring import refuse_unknown_tokens


@torch.no_grad()
def policy_logprobs(
    logits_of: TrainedLogits,
    rows: Sequence[TrainRow],
    micro_batches: Sequence[MicroBatch],
    temperature: float,
    rounds: Rounds,
    *,
    start: int = 0,
) -> tuple[Tensor, int]:
    """Of the sampled tokens in the micro-batches from `start` on, 0 elsewhere `[B, T]` on the CPU; and where it ended.

    All ranks have all of it in the end.
    """
    logprobs = torch.zeros(len(rows), max(row.num_tokens for row in rows))
    for share, end in rounds.through(micro_batches, start=start, kind="scoring"):
        part = completion_logprobs(logits_of, [rows[index] for index in share.indices], temperature).cpu()
        if share.counts:
            logprobs[share.indices, : part.shape[1]] = part
        start = end
    return rounds.ranks.total(logprobs), start


def plan_of_all(rows: Sequence[TrainRow], max_token_len: int, *, share_prompts: bool) -> MiniBatch:
    """Micro-batches of all rows, also of those that no update reads: rewards may depend on them."""
    return pack_micro_batches(rows, range(len(rows)), max_token_len, share_prompts=share_prompts)


def logprobs_of_all(
    model: PreTrainedModel,
    rows: Sequence[TrainRow],
    *,
    temperature: float,
    max_token_len: int,
    compute: TrainingPass = DEFAULT_PASS,
    ranks: Ranks = ONE_RANK,
) -> Tensor:
    """Of all rows, given in any order, in sorted order. [B, T] on the CPU. Raises InvalidRows."""
    ordered = sort_rows(rows)
    refuse_unknown_tokens(ordered, model.get_input_embeddings().weight.shape[0])
    share_prompts = supports_prompt_sharing(model)
    model.eval()
    plan = plan_of_all(ordered, max_token_len, share_prompts=share_prompts)
    with trained_logits(model, share_prompts=share_prompts, config=compute) as logits_of:
        logprobs, _ = policy_logprobs(logits_of, ordered, plan, temperature, Rounds(ordered, ranks))
    return logprobs
