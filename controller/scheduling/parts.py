"""What is assigned as one: a group, or a slice of its samples.

A group stays whole, so that one actor prefills its prompt once, but where it pays to split it: with fewer groups than
actors, and where one group takes longer than its actor should. The samples of a group are exchangeable, and nobody
knows which of them is going to be the longest, so a slice is expected to have every s-th of the sorted lengths.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.scheduling.actor_time import Work, measure
from controller.scheduling.assignment import assign_in_order
from controller.scheduling.observations import PromptGroup
from shared.contracts.rollout import WorkItem


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of a batch, in its order."""

    groups: tuple[PromptGroup, ...]
    group_size: int
    place: tuple[tuple[int, int, int], ...] | None
    """Of each part: number of its group, of its slice, and of that group's slices; ``None``: every group is whole."""
    work: Work

    def items(self, numbers: Sequence[int]) -> tuple[WorkItem, ...]:
        """The work items of one actor that is given the parts of these numbers; slices of a group are joined."""
        whole = tuple(range(self.group_size))
        if self.place is None:
            groups = self.groups
            return tuple([WorkItem(row_uid=groups[number].row_uid, samples=whole) for number in numbers])
        samples: dict[int, list[int]] = {}
        for number in numbers:
            group, part, num_slices = self.place[number]
            samples.setdefault(group, []).extend(_slice(whole, num_slices, part))
        return tuple(
            WorkItem(row_uid=self.groups[group].row_uid, samples=tuple(sorted(of))) for group, of in samples.items()
        )


def whole_groups(groups: tuple[PromptGroup, ...], group_size: int) -> Parts:
    """Every group as one part."""
    work = measure([group.num_prompt_tokens for group in groups], [group.estimate.lengths for group in groups])
    return Parts(groups=groups, group_size=group_size, place=None, work=work)


def sliced_groups(groups: tuple[PromptGroup, ...], group_size: int, num_slices: Sequence[int]) -> Parts:
    """Each group in so many slices, whose sizes differ by one at most."""
    place = tuple(
        (group, part, slices) for group, slices in enumerate(num_slices) for part in range(min(slices, group_size))
    )
    work = measure(
        [groups[group].num_prompt_tokens for group, _, _ in place],
        [groups[group].estimate.lengths[part::slices] for group, part, slices in place],
    )
    return Parts(groups=groups, group_size=group_size, place=place, work=work)


def _slice(samples: tuple[int, ...], num_slices: int, part: int) -> tuple[int, ...]:
    return samples if num_slices == 1 else assign_in_order(samples, num_slices)[part]
