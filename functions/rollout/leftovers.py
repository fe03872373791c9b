"""What a cut actor leaves: which of its unfinished samples go on at which other actor. Pure."""

from collections.abc import Collection, Mapping, Sequence

from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.contracts.rollout_mail import Taker
from shared.store.base import Part


def parts_for(
    unfinished: Mapping[WorkItem, Collection[SampleId]], takers: Sequence[Taker]
) -> dict[WorkItem, tuple[Part, ...]]:
    """The parts of each item, without the samples that are done.

    Samples of one prompt stay together where an actor has places for all of them, for their prompt is computed once
    per actor; else the item is split. The largest item comes first, and each goes where most places are left. What no
    actor has a place for is offered to all.
    """
    places = {taker.shard: taker.free_slots for taker in takers}
    parts: dict[WorkItem, tuple[Part, ...]] = {}
    for item in sorted(unfinished, key=lambda item: (-len(unfinished[item]), item.row_uid, item.samples)):
        samples = sorted(id.sample for id in unfinished[item])
        parts[item] = tuple(_split(item.row_uid, samples, places))
    return parts


def _split(row_uid: str, samples: Sequence[int], places: dict[int, int]) -> list[Part]:
    """Parts for one item; takes the places that they need."""
    parts: list[Part] = []
    while samples:
        shard = max(places, key=lambda shard: (places[shard], -shard), default=None)
        if shard is None or places[shard] == 0:
            return [*parts, Part(None, WorkItem(row_uid=row_uid, samples=tuple(samples)))]
        here, samples = samples[: places[shard]], samples[places[shard] :]
        places[shard] -= len(here)
        parts.append(Part(shard, WorkItem(row_uid=row_uid, samples=tuple(here))))
    return parts
