"""The sequences in an engine: since when, with what before, and how far they are."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from functions.rollout.engine import SequenceRequest
from shared.contracts.completion import SampleId, Stay, num_migrations
from shared.contracts.rollout import SequenceProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A sample that waits for a place in the engine."""

    request: SequenceRequest
    stays: tuple[Stay, ...] = ()
    """Where it was before."""
    has_kv: bool = False
    """Whether somebody stored the keys and values of what it has."""

    @property
    def id(self) -> SampleId:
        """Which sample."""
        return SampleId(self.request.row_uid, self.request.sample)


@dataclass(slots=True, kw_only=True)
class _Seat:
    waiting: Waiting
    started_at: float
    num_steps_before: int
    """Steps that the engine had made when it came."""
    first_token_at: float | None = None


class Seats:
    """What runs in one worker's engine. Changed on the event loop; the engine itself is never asked."""

    def __init__(self, shard: int, instance: str, num_steps: Callable[[], int]) -> None:
        """``num_steps``: steps that the engine has made so far, one token per running sequence each."""
        self._shard = shard
        self._instance = instance
        self._num_steps = num_steps
        self._seats: dict[SampleId, _Seat] = {}

    def enter(self, sequences: Iterable[Waiting], now: float) -> None:
        """These go to the engine."""
        for sequence in sequences:
            self._seats[sequence.id] = _Seat(waiting=sequence, started_at=now, num_steps_before=self._num_steps())

    def note_tokens(self, first_step_at: float) -> None:
        """The engine has made steps, the first of them at this time."""
        for seat in self._seats.values():
            if seat.first_token_at is None:
                seat.first_token_at = first_step_at

    def leave(self, id: SampleId, *, num_tokens: int, now: float) -> tuple[Stay, ...]:
        """The sequence has left, with so many tokens: all its stays, this one the last."""
        seat = self._seats.pop(id)
        return (*seat.waiting.stays, self._stay(seat, num_tokens=num_tokens, now=now))

    def _stay(self, seat: _Seat, *, num_tokens: int, now: float) -> Stay:
        return Stay(
            shard=self._shard,
            instance=self._instance,
            started_at=seat.started_at,
            first_token_at=seat.first_token_at,
            ended_at=now,
            num_tokens=num_tokens,
        )

    def ids(self) -> list[SampleId]:
        """What runs."""
        return list(self._seats)

    def clear(self) -> None:
        """Nothing runs any more."""
        self._seats.clear()

    @property
    def most_migrations(self) -> int:
        """How often the most travelled of the sequences was moved: coming here counts."""
        return max(
            (
                num_migrations((*seat.waiting.stays, self._stay(seat, num_tokens=0, now=seat.started_at)))
                for seat in self._seats.values()
            ),
            default=0,
        )

    def progress(self) -> tuple[SequenceProgress, ...]:
        """How far each sequence is, as the engine's steps tell: what was inserted between turns is not counted."""
        num_steps = self._num_steps()
        return tuple(
            SequenceProgress.model_construct(
                row_uid=id.row_uid,
                sample=id.sample,
                num_tokens=len(seat.waiting.request.generated.token_ids) + num_steps - seat.num_steps_before,
            )
            for id, seat in self._seats.items()
        )

    def context_tokens(self, running: Iterable[SequenceProgress]) -> int:
        """Prompt and generated tokens of all that runs."""
        prompts = sum(len(seat.waiting.request.prompt_token_ids) for seat in self._seats.values())
        return prompts + sum(sequence.num_tokens for sequence in running)
