"""What is assigned as one."""

from hypothesis import given
from hypothesis import strategies as st

from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.observations import PromptGroup
from controller.scheduling.parts import sliced_groups, whole_groups
from shared.contracts.rollout import WorkItem


def groups_of(*lengths: tuple[float, ...]) -> tuple[PromptGroup, ...]:
    return tuple(
        PromptGroup(row_uid=f"r{n}", num_prompt_tokens=7, estimate=LengthEstimate(lengths=one, source="history"))
        for n, one in enumerate(lengths)
    )


def test_a_whole_group_is_one_item() -> None:
    parts = whole_groups(groups_of((1.0, 2.0), (3.0, 4.0)), 2)
    assert parts.items([1, 0]) == (
        WorkItem(row_uid="r1", samples=(0, 1)),
        WorkItem(row_uid="r0", samples=(0, 1)),
    )
    assert parts.work.tokens.tolist() == [3.0, 7.0]


def test_a_slice_is_expected_to_have_its_share_of_long_ones() -> None:
    """Nobody knows which sample is the longest, so no slice is expected to have only short ones."""
    parts = sliced_groups(groups_of((1.0, 2.0, 3.0, 4.0)), 4, [2])
    assert parts.work.longest.tolist() == [3.0, 4.0]
    assert parts.work.prompt_tokens.tolist() == [7.0, 7.0]


@given(st.integers(1, 6), st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_slices_are_all_samples_once(size: int, num_slices: list[int]) -> None:
    groups = groups_of(*[tuple(float(n + 1) for n in range(size)) for _ in num_slices])
    parts = sliced_groups(groups, size, num_slices)
    assert parts.place is not None
    items = [item for number in range(len(parts.place)) for item in parts.items([number])]
    assert len(items) == sum(min(size, of) for of in num_slices)
    assert sorted((item.row_uid, sample) for item in items for sample in item.samples) == sorted(
        (group.row_uid, sample) for group in groups for sample in range(size)
    )
    counts = parts.work.counts[parts.work.order.argsort()].tolist()
    assert [len(item.samples) for item in items] == counts


def test_slices_of_a_group_that_meet_are_one_item_again() -> None:
    parts = sliced_groups(groups_of((1.0, 2.0, 3.0, 4.0), (5.0,) * 4), 4, [2, 1])
    assert parts.items([1, 2, 0]) == (
        WorkItem(row_uid="r0", samples=(0, 1, 2, 3)),
        WorkItem(row_uid="r1", samples=(0, 1, 2, 3)),
    )
