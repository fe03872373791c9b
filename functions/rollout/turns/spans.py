"""Where the turns of a completion lie. Its `loss_mask` says it all: a turn is a run of sampled tokens.

Shapes: T = tokens after the prompt.
"""

from collections.abc import Sequence
from itertools import groupby

from functions.rollout.engine import GeneratedTokens


def turn_starts(loss_mask: Sequence[bool]) -> tuple[int, ...]:
    """Where each turn begins among the T tokens; `(0,)` for a single one, also for one without tokens yet."""
    return (0, *(at for at in range(1, len(loss_mask)) if loss_mask[at] and not loss_mask[at - 1]))


def last_turn(generated: GeneratedTokens) -> tuple[int, ...]:
    """Token ids of the last turn; none where it has not begun."""
    length = len(generated.loss_mask)
    start = next((at + 1 for at in reversed(range(length)) if not generated.loss_mask[at]), 0)
    return generated.token_ids[start:]


def insertions(generated: GeneratedTokens) -> list[tuple[int, ...]]:
    """Token ids of each inserted text, in order."""
    runs = groupby(zip(generated.loss_mask, generated.token_ids, strict=True), key=lambda pair: pair[0])
    return [tuple(token_id for _, token_id in run) for is_sampled, run in runs if not is_sampled]
