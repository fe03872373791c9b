"""The replicas that are held for a batch, given back one by one as their actors run out of work."""

from collections.abc import Callable, Collection, Mapping

from controller.platforms.base import Platform
from shared.contracts.ids import InstanceId
from shared.contracts.stage import Stage

NumKept = Callable[[int], int]
"""Actors that are busy → replicas to keep: those, and such as wait for their next use since that is cheaper."""


def busy_only(num_busy: int) -> int:
    """Keep no replica without work."""
    return num_busy


class ActorHold:
    """A hold on replicas of rollout that shrinks with the work.

    The platform's minimum is never lower than what is busy, since an autoscaler that has not seen the requests yet
    would take busy replicas, and idle ones are named before it is lowered, so that it takes these. While a call waits
    for its replica nothing is given back: it may come to any of them, and replicas that start are the first to go.
    """

    def __init__(self, platform: Platform, num_replicas: int, *, until: float, num_kept: NumKept = busy_only) -> None:
        """``num_replicas`` are held on the platform until the Unix time ``until``."""
        self._platform = platform
        self._num_held = num_replicas
        self._until = until
        self._num_kept = num_kept
        self._retired: set[str] = set()

    async def give_back(self, busy: Mapping[int, str | None], answered: Collection[str]) -> None:
        """Release what has no more to do: replicas in ``answered`` that are not ``busy``.

        ``busy``: the instance at work on each shard's call, ``None`` where none has been heard of.
        """
        if None in busy.values():
            return
        num_kept = max(len(busy), self._num_kept(len(busy)))
        idle = sorted(set(answered) - set(busy.values()) - self._retired)
        surplus = idle[: max(0, len(busy) + len(idle) - num_kept)]
        if surplus:
            self._retired.update(surplus)
            await self._platform.retire(Stage.ROLLOUT, [InstanceId(instance) for instance in surplus])
        if num_kept < self._num_held and self._platform.now() < self._until:
            self._num_held = num_kept
            await self._platform.scale(Stage.ROLLOUT, num_kept, hold_until=self._until)
