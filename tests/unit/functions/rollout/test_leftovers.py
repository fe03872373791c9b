"""Who goes on with what a cut actor leaves."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from functions.rollout.leftovers import parts_for
from shared.contracts.completion import SampleId
from shared.contracts.rollout import WorkItem
from shared.contracts.rollout_mail import Taker
from shared.store.base import Part


def item(row: str, num_samples: int = 8) -> WorkItem:
    return WorkItem(row_uid=row, samples=tuple(range(num_samples)))


def left(**samples: Sequence[int]) -> dict[WorkItem, set[SampleId]]:
    return {item(row): {SampleId(row, sample) for sample in some} for row, some in samples.items()}


def takers(*free_slots: int) -> list[Taker]:
    return [Taker(shard=shard, free_slots=free) for shard, free in enumerate(free_slots, start=1)]


def part(shard: int | None, row: str, *samples: int) -> Part:
    return Part(shard, WorkItem(row_uid=row, samples=samples))


def test_only_what_is_not_done_goes_on_and_a_group_stays_together_where_it_fits() -> None:
    parts = parts_for(left(a=[5, 1], b=[0, 2, 7]), takers(2, 4))
    assert parts == {item("a"): (part(1, "a", 1, 5),), item("b"): (part(2, "b", 0, 2, 7),)}


def test_each_goes_where_most_places_are_left() -> None:
    parts = parts_for(left(a=[0], b=[0], c=[0], d=[0]), takers(3, 2))
    assert [some[0].shard for some in parts.values()] == [1, 1, 2, 1]


def test_a_group_without_a_place_for_all_of_it_is_split_and_the_rest_is_offered_to_all() -> None:
    parts = parts_for(left(a=[0, 1, 2, 3, 4, 5]), takers(2, 3))
    assert parts == {item("a"): (part(2, "a", 0, 1, 2), part(1, "a", 3, 4), part(None, "a", 5))}


def test_without_a_taker_all_is_offered_to_all() -> None:
    assert parts_for(left(a=[3]), []) == {item("a"): (part(None, "a", 3),)}
    assert parts_for({}, takers(3)) == {}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.integers(0, 7), min_size=1), max_size=8),
    st.lists(st.integers(1, 9), max_size=5),
)
def test_every_sample_goes_on_once_and_nobody_gets_more_than_it_has_places_for(
    samples: Mapping[str, set[int]], free: list[int]
) -> None:
    unfinished = left(**{row: sorted(some) for row, some in samples.items()})
    parts = parts_for(unfinished, takers(*free))
    assert parts.keys() == unfinished.keys()
    num_placed: dict[int | None, int] = {}
    for whole, some in parts.items():
        ids = [SampleId(each.item.row_uid, sample) for each in some for sample in each.item.samples]
        assert sorted(ids) == sorted(unfinished[whole])
        for each in some:
            num_placed[each.shard] = num_placed.get(each.shard, 0) + len(each.item.samples)
    assert all(num_placed.get(taker.shard, 0) <= taker.free_slots for taker in takers(*free))
    num_left = sum(map(len, unfinished.values()))
    assert num_placed.get(None, 0) == max(0, num_left - sum(free))
