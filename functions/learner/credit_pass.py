"""The credit of a batch by itself, before its update: for a critic that is fitted to the returns meanwhile.

Shapes: B rows, T longest completion, T_b tokens of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from functions.learner.credit import Credit, assign_credit
from functions.learner.credit_config import CreditConfig
from functions.learner.rows import TrainRow
from shared.codec.token_values import TokenValues
from shared.contracts.completion import SampleId
from shared.training.rows import sort_rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CreditPass:
    """A batch's credit and what it was computed from."""

    rows: Sequence[TrainRow]
    """Sorted."""
    credit: Credit
    old_logprobs: Tensor | None
    """[B, T]; None where advantages did not need them."""

    def vectors(self) -> dict[str, TokenValues]:
        """What is stored, by name: `advantages`, `returns` and, where there are any, `old_logprobs`. [T_b] each"""
        tensors = {"advantages": self.credit.advantages, "returns": self.credit.returns}
        if self.old_logprobs is not None:
            tensors["old_logprobs"] = self.old_logprobs
        return {name: _by_completion(self.rows, tensor) for name, tensor in tensors.items()}


def credit_pass(rows: Sequence[TrainRow], config: CreditConfig, old_logprobs: Tensor | None) -> CreditPass:
    """The credit of rows in any order, bit-equal to what an update of them would compute for itself.

    `old_logprobs` `[B, T]` of the sorted rows by the policy that sampled, where `needs_old_logprobs`. Raises what
    `assign_credit` raises, and InvalidRows.
    """
    ordered = sort_rows(rows)
    return CreditPass(rows=ordered, credit=assign_credit(ordered, config, old_logprobs), old_logprobs=old_logprobs)


def _by_completion(rows: Sequence[TrainRow], tensor: Tensor) -> TokenValues:
    return {
        SampleId(row.row_uid, row.sample): np.ascontiguousarray(numbers[: row.num_tokens])
        for row, numbers in zip(rows, tensor.numpy(), strict=True)
    }
