"""Logprobs of completion tokens by the learner's model: the pass that gradients flow back through.

Logits are computed at trained positions only, so what stands at masked ones never enters the graph.

Shapes: B rows, T longest completion, L longest sequence, M trained tokens, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from shared.contracts.training_pass import DEFAULT_PASS, Precision, TrainingPass
from shared.modeling.logprobs import entropy, token_logprobs
from shared.training.checkpointing import checkpointed_layers
from shared.training.padding import pad_to_batch
from shared.training.prompt_layout import build_layout
from shared.training.prompt_sharing import predict_trained_tokens, shared_prompt_attention
from shared.training.rows import SequenceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionLogprobs:
    """`[B, T]` float32, 0 where `loss_mask` is False."""

    logprobs: Tensor
    entropy: Tensor
    """Of the whole distribution at each position."""


AUTOCAST: Mapping[Precision, torch.dtype | None] = MappingProxyType({"float32": None, "bfloat16": torch.bfloat16})

TrainedLogits = Callable[[Sequence[SequenceRow]], Tensor]
"""Rows → logits of their trained tokens, rows one behind the other. [M, V]"""


@contextmanager
def trained_logits(
    model: PreTrainedModel, *, share_prompts: bool, config: TrainingPass = DEFAULT_PASS
) -> Iterator[TrainedLogits]:
    """The forward pass to use, and to call backward, within. All give the same numbers, up to their precision."""

    dtype = AUTOCAST[config.dtype]

    def logits_of(rows: Sequence[SequenceRow]) -> Tensor:
        # Only around the forward pass: each operation's backward follows the precision that its forward had.
        with torch.autocast(model.device.type, dtype, enabled=dtype is not None):
            if share_prompts:
                return predict_trained_tokens(model, build_layout(rows, model.device))
            return plain_logits(model, rows)

    with ExitStack() as stack:
        if share_prompts:
            stack.enter_context(shared_prompt_attention(model))
        if config.enable_gradient_checkpointing:
            stack.enter_context(checkpointed_layers(model))
        yield logits_of


def plain_logits(model: PreTrainedModel, rows: Sequence[SequenceRow]) -> Tensor:
    """One padded sequence of prompt and completion per row. [M, V]

    Padding stands on the right, where a causal model cannot see it from any real token: no mask is needed and
    positions start at 0. The last token of a completion predicts nothing that is trained and stays out.
    """
    token_ids = pad_to_batch([np.concatenate([row.prompt_token_ids, row.completion_token_ids[:-1]]) for row in rows])
    first = min(row.prompt_token_ids.size for row in rows) - 1
    outputs = model(input_ids=token_ids.to(model.device), use_cache=False, logits_to_keep=token_ids.shape[1] - first)
    row_numbers, positions = [], []
    for number, row in enumerate(rows):
        trained = np.flatnonzero(row.loss_mask)
        row_numbers.append(np.full(trained.size, number))
        positions.append(row.prompt_token_ids.size - 1 + trained - first)
    logits: Tensor = outputs.logits[_index(row_numbers), _index(positions)]
    return logits


def completion_logprobs(logits_of: TrainedLogits, rows: Sequence[SequenceRow], temperature: float) -> Tensor:
    """Logprobs of the rows' trained tokens under the full softmax at `temperature`. [B, T]"""
    return scatter_trained(trained_token_logprobs(logits_of(rows), rows, temperature), rows)


def logprobs_and_entropy(
    logits_of: TrainedLogits, rows: Sequence[SequenceRow], temperature: float, *, entropy_gradient: bool
) -> CompletionLogprobs:
    """Both from one forward pass; the entropy has a gradient only on demand."""
    logits = logits_of(rows)
    entropies = entropy(logits if entropy_gradient else logits.detach(), temperature)
    logprobs = trained_token_logprobs(logits, rows, temperature)
    return CompletionLogprobs(logprobs=scatter_trained(logprobs, rows), entropy=scatter_trained(entropies, rows))


def trained_token_logprobs(logits: Tensor, rows: Sequence[SequenceRow], temperature: float) -> Tensor:
    """Of the logits `[M, V]` of the rows' trained tokens, those tokens' logprobs. [M]"""
    token_ids = _index([row.completion_token_ids[row.loss_mask] for row in rows]).to(logits.device)
    return token_logprobs(logits, token_ids, temperature)


def scatter_trained(trained_values: Tensor, rows: Sequence[SequenceRow]) -> Tensor:
    """`[M]` to its places in `[B, T]`, 0 elsewhere."""
    loss_mask = pad_to_batch([row.loss_mask for row in rows]).to(trained_values.device)
    return torch.zeros(loss_mask.shape, device=loss_mask.device).masked_scatter(loss_mask, trained_values)


def _index(parts: Sequence[NDArray[np.integer[Any]]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
