"""What is kept of shared segments, for how long, and that every one is found where it lies."""

import torch

from functions.rollout.torch_engine.shared_prefixes import SharedPrefixes
from shared.inference.prefix_kv import KvLayout
from shared.inference.prefix_tree import Segment

LAYOUT = KvLayout(num_layers=2, num_kv_heads=2, head_dim=4, dtype="float32")


def prefixes() -> SharedPrefixes:
    return SharedPrefixes(LAYOUT, torch.float32, torch.device("cpu"))


def segment(*token_ids: int, parent: Segment | None = None, num_users: int = 2) -> Segment:
    """With numbers that say which token they belong to."""
    filled = torch.tensor(token_ids, dtype=torch.float32)[:, None].expand(2, 2, len(token_ids), 4)
    start, users = parent.end if parent else 0, tuple(range(num_users))
    return Segment(
        parent=parent, token_ids=token_ids, start=start, users=users, keys=filled.clone(), values=-filled.clone()
    )


def assert_in_place(kept: SharedPrefixes, *segments: Segment) -> None:
    for one in segments:
        expected = segment(*one.token_ids)
        keys, values = one.kv
        assert torch.equal(keys, expected.keys)
        assert torch.equal(values, expected.values)
    in_slabs = {
        entry.token_ids: slab.keys[:, slot, :, : len(entry.token_ids)]
        for slab in kept.slabs
        for slot, entry in enumerate(slab.segments)
    }
    assert in_slabs.keys() == {one.token_ids for one in segments}
    for one in segments:
        assert torch.equal(in_slabs[one.token_ids], one.kv[0])


def test_segments_stay_in_place_while_others_come_and_go() -> None:
    kept = prefixes()
    first, second, third, fourth = segment(1, 2), segment(3, 4, 5), segment(6, 7), segment(8, 9, 10)
    kept.keep([first, second, third])
    for one in (first, second, third):
        kept.acquire(one)
    assert_in_place(kept, first, second, third)
    kept.release(first)
    assert first.keys is None
    kept.keep([fourth])
    kept.acquire(fourth)
    assert_in_place(kept, second, third, fourth)
    assert len({id(slab) for slab in kept.slabs}) == 1


def test_a_segment_stays_for_as_long_as_a_sequence_goes_through_it() -> None:
    kept = prefixes()
    above = segment(1, 2)
    below = segment(3, 4, parent=above)
    kept.keep([above, below])
    kept.acquire(below)
    kept.acquire(below)
    kept.acquire(above)
    kept.release(below)
    kept.release(above)
    assert_in_place(kept, above, below)
    kept.release(below)
    assert list(kept.slabs) == []
    assert kept.find((1, 2, 3, 4)) is None


def test_the_longest_chain_that_is_there_is_found() -> None:
    kept = prefixes()
    above, other = segment(1, 2), segment(5, 6, 7)
    below = segment(3, 4, parent=above)
    kept.keep([above, other, below])
    assert kept.find((1, 2, 3, 4, 5)) is below
    assert kept.find((1, 2, 3)) is above
    assert kept.find((1, 2)) is above
    assert kept.find((5, 6, 7)) is other
    for token_ids in ((1,), (5, 6, 8), ()):
        assert kept.find(token_ids) is None


def test_lengths_and_group_sizes_that_differ_much_lie_apart() -> None:
    kept = prefixes()
    short, long = segment(1, 2), segment(*range(10, 30))
    large = segment(3, 4, num_users=64)
    kept.keep([short, long, large, segment(5, 6, 7, num_users=7)])
    assert sorted(len(slab.segments) for slab in kept.slabs) == [1, 1, 2]
