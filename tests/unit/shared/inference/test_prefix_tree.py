"""The tree of prefixes: every prefix is spelled out by its segments, and what is common is one of them."""

import random

import pytest

from shared.inference.distinct_prefixes import common_length
from shared.inference.prefix_tree import Segment, Sharing, grow

ANY = Sharing(min_tokens=1, block_tokens=1)


def spelled(segment: Segment | None) -> tuple[int, ...]:
    return tuple(token_id for part in (segment.chain() if segment else []) for token_id in part.token_ids)


def as_texts(segments: list[Segment]) -> list[tuple[int, ...]]:
    return [segment.token_ids for segment in segments]


def test_a_common_beginning_is_a_segment_above_those_that_differ() -> None:
    segments, last = grow([(1, 2, 3, 4), (1, 2, 5), (1, 2, 3, 4), (9,)], ANY)
    assert as_texts(segments) == [(1, 2), (3, 4), (5,), (9,)]
    assert [segment.users for segment in segments] == [(0, 2, 1), (0, 2), (1,), (3,)]
    assert [segment.parent for segment in segments] == [None, segments[0], segments[0], None]
    assert last == [segments[1], segments[2], segments[1], segments[3]]


def test_a_prefix_of_another_ends_above_it() -> None:
    segments, last = grow([(1, 2, 3), (1, 2)], ANY)
    assert as_texts(segments) == [(1, 2), (3,)]
    assert last == [segments[1], segments[0]]


def test_empty_prefixes_have_no_segment() -> None:
    assert grow([(), ()], ANY) == ([], [None, None])


def test_short_common_beginnings_are_left_alone_and_longer_ones_end_at_blocks() -> None:
    sharing = Sharing(min_tokens=4, block_tokens=2)
    one, other = (1, 2, 3, 7, 8), (1, 2, 3, 9)
    assert as_texts(grow([one, other], sharing)[0]) == [one, other]
    one, other = (1, 2, 3, 4, 5, 7), (1, 2, 3, 4, 5, 8, 8)
    assert as_texts(grow([one, other], sharing)[0]) == [(1, 2, 3, 4), (5, 7), (5, 8, 8)]
    assert as_texts(grow([one, one], sharing)[0]) == [one]


def test_segments_continue_below_a_parent() -> None:
    (parent,), _ = grow([(1, 2, 3)], ANY)
    segments, last = grow([(1, 2, 3, 4), (1, 2, 3)], ANY, parent)
    assert [(s.parent, s.start, s.end, s.token_ids) for s in segments] == [(parent, 3, 4, (4,))]
    assert last == [segments[0], parent]


@pytest.mark.parametrize("sharing", [ANY, Sharing(min_tokens=4, block_tokens=2), Sharing()])
def test_any_prefixes_are_spelled_out(sharing: Sharing) -> None:
    rng = random.Random(0)
    roots = [[rng.randrange(3) for _ in range(70)] for _ in range(3)]
    prefixes = [
        tuple(rng.choice(roots)[: rng.randrange(70)] + [rng.randrange(3) for _ in range(rng.randrange(40))])
        for _ in range(60)
    ]
    segments, last = grow(prefixes, sharing)
    assert [spelled(segment) for segment in last] == prefixes
    for index, segment in enumerate(segments):
        assert segment.parent is None or segment.parent in segments[:index]
        assert sorted(segment.users) == sorted(
            i for i, end in enumerate(last) if segment in (end.chain() if end else [])
        )
    # Between siblings there is nothing left worth a segment.
    for parent in (None, *segments):
        siblings = [segment.token_ids for segment in segments if segment.parent is parent]
        for at, one in enumerate(siblings):
            assert all(common_length(one, other) < sharing.min_tokens for other in siblings[:at])


def test_sharing_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        Sharing(min_tokens=10, block_tokens=4)
