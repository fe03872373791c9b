"""controller → learner, critic: what one step trains on, by reference."""

from pydantic import Field

from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire


class BatchPart(Wire):
    """The groups of one sampling round that a step trains on. Their completions are in the store under that round."""

    round: int = Field(ge=0, default=0)
    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    """Rows of the round to train on: not every sampled group is (dynamic sampling)."""
    scores: tuple[BlobRef, ...] = ()
    """One ``Scores`` per reward shard."""
    reference_logprobs: tuple[BlobRef, ...] = ()
    """Token values per reference shard; empty where no KL term needs them."""
    values: tuple[BlobRef, ...] = ()
    """Token values per critic shard; empty without a critic."""
