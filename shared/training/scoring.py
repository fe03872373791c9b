"""A number for every trained token of many completions, without a gradient: reference logprobs, critic values.

Shapes: T tokens of one completion, M trained tokens of a micro-batch, V outputs per token.
"""

from collections.abc import Callable, Sequence
from types import MappingProxyType

import torch
from torch import Tensor
from transformers import PreTrainedModel

from shared.codec.token_values import TokenValues
from shared.contracts.completion import SampleId
from shared.contracts.training_pass import DEFAULT_PASS, TrainingPass
from shared.training.batching import pack_micro_batches
from shared.training.errors import InvalidRows
from shared.training.forward import scatter_trained, trained_logits
from shared.training.passes import within_budget
from shared.training.prompt_sharing import supports_prompt_sharing
from shared.training.rows import SequenceRow
from shared.training.time_budget import UNLIMITED, Budget

ReadOutputs = Callable[[Tensor, Sequence[SequenceRow]], Tensor]
"""(model outputs at the trained tokens [M, V], their rows) → one number each [M]."""
NOTHING: TokenValues = MappingProxyType({})


@torch.inference_mode()
def score_trained_tokens(
    model: PreTrainedModel,
    rows: Sequence[SequenceRow],
    read: ReadOutputs,
    *,
    max_token_len: int,
    compute: TrainingPass = DEFAULT_PASS,
    budget: Budget = UNLIMITED,
    finished: TokenValues = NOTHING,
) -> TokenValues:
    """What `read` makes of the model's outputs, by completion. [T] float32, 0 where `loss_mask` is False.

    `max_token_len` bounds the tokens of one forward pass, padding included where there is any.

    `budget` is asked before every pass. Where it ends before the rows, the completions that are missing are left to a
    call with the same arguments and these numbers as `finished`; such calls together are bit-equal to a single one.
    """
    refuse_unknown_tokens(rows, model.get_input_embeddings().weight.shape[0])
    share_prompts = supports_prompt_sharing(model)
    ids = [SampleId(row.row_uid, row.sample) for row in rows]
    plan = pack_micro_batches(rows, range(len(rows)), max_token_len, share_prompts=share_prompts)
    left = [indices for indices in plan if any(ids[index] not in finished for index in indices)]
    scored = dict(finished)
    with trained_logits(model, share_prompts=share_prompts, config=compute) as logits_of:
        for indices in within_budget(rows, left, budget, "scoring"):
            part = [rows[index] for index in indices]
            numbers = scatter_trained(read(logits_of(part), part).float(), part).cpu().numpy()
            for index, values in zip(indices, numbers, strict=True):
                scored[ids[index]] = values[: rows[index].num_tokens].copy()
    return scored


def refuse_unknown_tokens(rows: Sequence[SequenceRow], vocab_size: int) -> None:
    """Raises InvalidRows where a token id is none of the model's."""
    for row in rows:
        for token_ids in (row.prompt_token_ids, row.completion_token_ids):
            if token_ids.min() < 0 or token_ids.max() >= vocab_size:
                raise InvalidRows(
                    f"{row.label} holds token ids outside the model's vocabulary of {vocab_size}: "
                    "was it made with another tokenizer?"
                )
