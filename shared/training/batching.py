"""Which rows go through the model together: groups → mini-batches → micro-batches. Pure.

The plan depends on the sorted rows and the config only, so a replay packs as the first run did.
"""

from collections.abc import Sequence

from shared.training.rows import GroupKey, SequenceRow

MicroBatch = list[int]
"""Row indices."""
MiniBatch = list[MicroBatch]
"""Micro-batches whose gradients are summed for one optimizer update."""


def split_mini_batches(rows: Sequence[SequenceRow], groups: Sequence[GroupKey], num_groups: int) -> list[list[int]]:
    """Row indices of every mini-batch: runs of `num_groups` of the given groups (0: all), the last maybe shorter."""
    size = num_groups or max(1, len(groups))
    mini_batch_of = {key: position // size for position, key in enumerate(groups)}
    mini_batches: list[list[int]] = [[] for _ in range(-(-len(groups) // size))]
    for index, row in enumerate(rows):
        if row.group in mini_batch_of:
            mini_batches[mini_batch_of[row.group]].append(index)
    return mini_batches


def pack_micro_batches(
    rows: Sequence[SequenceRow], indices: Sequence[int], max_tokens: int, *, share_prompts: bool
) -> MiniBatch:
    """Cuts the rows of a mini-batch into micro-batches of at most `max_tokens` each, padding included.

    Rows with the same prompt stay together and families of similar length lie next to each other. A family that
    does not fit is cut by length, longest rows first; a row that does not fit alone is a micro-batch of its own.
    """
    families: dict[bytes, list[int]] = {}
    for index in indices:
        families.setdefault(rows[index].prompt_token_ids.tobytes(), []).append(index)
    micro_batches: MiniBatch = []
    current = _Shape(share_prompts)
    for family in sorted(families.values(), key=lambda family: _family_order(rows, family)):
        for part in _cut_family(rows, family, max_tokens, share_prompts):
            grown = current.with_rows(rows, part)
            if not micro_batches or grown.num_tokens > max_tokens:
                micro_batches.append([])
                grown = _Shape(share_prompts).with_rows(rows, part)
            micro_batches[-1].extend(part)
            current = grown
    return micro_batches


def _family_order(rows: Sequence[SequenceRow], family: Sequence[int]) -> tuple[int, int, int]:
    longest = max(rows[index].num_tokens for index in family)
    return (-rows[family[0]].prompt_token_ids.size, -longest, family[0])


def _cut_family(
    rows: Sequence[SequenceRow], family: Sequence[int], max_tokens: int, share_prompts: bool
) -> list[list[int]]:
    if _Shape(share_prompts).with_rows(rows, family).num_tokens <= max_tokens:
        return [list(family)]
    parts: list[list[int]] = []
    for index in sorted(family, key=lambda index: (-rows[index].num_tokens, index)):
        fits = parts and _Shape(share_prompts).with_rows(rows, [*parts[-1], index]).num_tokens <= max_tokens
        if fits:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts


class _Shape:
    """Padded size of a micro-batch: what the model computes for it."""

    def __init__(self, share_prompts: bool, num_prompts: int = 0, num_rows: int = 0, longest: tuple[int, int] = (0, 0)):
        self.share_prompts = share_prompts
        self.num_prompts = num_prompts
        self.num_rows = num_rows
        self.longest = longest

    @property
    def num_tokens(self) -> int:
        prompt, completion = self.longest
        copies = self.num_prompts if self.share_prompts else self.num_rows
        return copies * prompt + self.num_rows * completion

    def with_rows(self, rows: Sequence[SequenceRow], family: Sequence[int]) -> "_Shape":
        """This and further rows of one more prompt."""
        prompt, completion = self.longest
        return _Shape(
            self.share_prompts,
            self.num_prompts + 1,
            self.num_rows + len(family),
            (
                max(prompt, rows[family[0]].prompt_token_ids.size),
                max(completion, *(rows[index].num_tokens for index in family)),
            ),
        )
