"""A scoring pass that its deadline cuts into several calls: what one of them leaves for the next.

Shapes: T tokens of one completion.
"""

from collections.abc import Iterable

from pydantic import Field, ValidationError

from shared.codec.token_values import TokenValues
from shared.contracts.completion import Completion
from shared.contracts.policy import BlobRef
from shared.contracts.wire import Wire
from shared.service.handler import CallContext
from shared.training.errors import DamagedState
from shared.training.stored_rows import read_token_values


class PartialScores(Wire):
    """How far the calls so far came. Everything that it names is stored."""

    weights_digest: str
    """Of the version that scores."""
    scores: BlobRef | None = None
    """Token values of the completions that are finished; ``None`` before the first."""
    num_idle: int = Field(ge=0, default=0)
    """Calls in a row that had no time for a single micro-batch."""


async def read_partial(ref: BlobRef | None, weights_digest: str, context: CallContext) -> PartialScores:
    """Where a pass under these weights stands: at its beginning, if no ref says more.

    Raises ``DamagedState``, ``MissingBlob``.
    """
    if ref is None:
        return PartialScores(weights_digest=weights_digest)
    try:
        partial = PartialScores.model_validate_json(await context.blobs.get(ref))
    except ValidationError as error:
        raise DamagedState(f"partial: blob {ref.id} is no cut scoring pass") from error
    if partial.weights_digest != weights_digest:
        raise DamagedState(
            f"partial: these scores are of the weights {partial.weights_digest[:12]}, the call is of "
            f"{weights_digest[:12]}"
        )
    return partial


async def read_finished(
    partial: PartialScores, vector: str, completions: Iterable[Completion], context: CallContext
) -> TokenValues:
    """What is scored already, [T] by completion. Raises ``DamagedState`` where it is of others, ``MissingBlob``."""
    if partial.scores is None:
        return {}
    finished = await read_token_values([partial.scores], vector, context)
    lengths = {done.id: len(done.token_ids) for done in completions}
    foreign = sorted(id for id, numbers in finished.items() if lengths.get(id) != len(numbers))
    if foreign:
        raise DamagedState(f"partial: {len(foreign)} completions are none of this call's, such as {foreign[0]}")
    return finished
