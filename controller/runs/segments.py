"""A call that its deadline cuts: asked again from where it stopped until it is done."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from controller.runs.errors import ContractBroken
from shared.contracts.call import StageReply
from shared.contracts.policy import BlobRef
from shared.contracts.stage import Stage
from shared.contracts.wire import Wire

OutT = TypeVar("OutT", bound=Wire)

MAX_SEGMENTS = 10_000
"""A bound on what the deadline may cut one call into; far beyond any real run."""


async def to_the_end(
    stage: Stage,
    ask: Callable[[int, BlobRef | None], Awaitable[StageReply[OutT]]],
    stopped_at: Callable[[OutT], BlobRef | None],
) -> StageReply[OutT]:
    """The reply that is done. ``ask`` makes the call of a segment, from where the one before it stopped.

    Raises ``ContractBroken`` for a cut that does not say where it stopped, and for one segment too many.
    """
    place: BlobRef | None = None
    for segment in range(MAX_SEGMENTS):
        reply = await ask(segment, place)
        if reply.status == "done":
            return reply
        place = stopped_at(reply.outputs)
        if place is None:
            raise ContractBroken(f"{stage} asked to be continued and did not say from where: swap its image")
    raise ContractBroken(f"{stage} asked to be continued {MAX_SEGMENTS} times: swap its image")
