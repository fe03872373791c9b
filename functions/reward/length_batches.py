"""Which sequences go through a model together. Pure."""

from collections.abc import Sequence


def length_batches(lengths: Sequence[int], budget_tokens: int) -> list[list[int]]:
    """Indexes in batches of like length, the longest first; a batch's padded tokens stay within the budget.

    A sequence longer than the budget is a batch by itself.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        # The first of a batch is its longest.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches
