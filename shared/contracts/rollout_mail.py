"""controller, other workers → a busy rollout worker: messages that wait for it in the store (DESIGN, rule 6)."""

from enum import StrEnum

from pydantic import Field

from shared.contracts.wire import Wire


class MailKind(StrEnum):
    """What a worker can be told."""

    CANCEL = "cancel"
    """Stop; the result is not wanted."""
    CUT = "cut"
    """Stop, and leave the unfinished sequences to others, so that this replica can be given back."""
    WORK = "work"
    """There may be something to do: look at once."""


class Taker(Wire):
    """An actor that has places for sequences of another."""

    shard: int = Field(ge=0)
    free_slots: int = Field(ge=1)


class RolloutMail(Wire):
    """One message."""

    kind: MailKind
    fence: int = Field(ge=0)
    """Of the run's owner. Workers of a later owner pass the message over."""
    segment: int | None = Field(ge=0, default=None)
    """The call that is meant; a shard's other calls pass the message over. ``None``: whichever runs."""
    takers: tuple[Taker, ...] = ()
    """Where the sequences of a cut actor go; what they have no place for is offered to all."""
    with_kv: bool = False
    """Whether a cut actor stores the keys and values of its sequences, so that others need not compute them again."""
