"""Which rows go through the model together: groups → mini-batches → micro-batches. Pure.

The plan depends on the sorted rows and the config only, so a replay packs as the first run did. It is stored with the
step all the same: a replay by another release of this code follows it.
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
    """Cuts the rows of a mini-batch into micro-batches of at most `max_tokens` each, as the model computes them.

    A row that does not fit alone is a micro-batch of its own.
    """
    return (_pack_families if share_prompts else _pack_padded)(rows, indices, max_tokens)


def num_tokens(rows: Sequence[SequenceRow], indices: Sequence[int]) -> int:
    """Tokens that the model reads for some rows: their completions, and each distinct prompt once."""
    prompts = {rows[index].prompt_token_ids.tobytes(): rows[index].prompt_token_ids.size for index in indices}
    return sum(prompts.values()) + sum(rows[index].num_tokens for index in indices)


def _pack_padded(rows: Sequence[SequenceRow], indices: Sequence[int], max_tokens: int) -> MiniBatch:
    """For the plain pass: every token counts, padding too. Rows of similar length lie together, the longest first."""
    micro_batches: MiniBatch = []
    longest = 0
    for index in sorted(indices, key=lambda index: (-_plain_tokens(rows[index]), index)):
        if micro_batches and (len(micro_batches[-1]) + 1) * longest <= max_tokens:
            micro_batches[-1].append(index)
        else:
            micro_batches.append([index])
            longest = _plain_tokens(rows[index])
    return micro_batches


def _pack_families(rows: Sequence[SequenceRow], indices: Sequence[int], max_tokens: int) -> MiniBatch:
    """For the shared pass: a prompt counts once, and there is no padding.

    Rows with the same prompt stay together; a family that does not fit is cut, for each part computes the prompt
    again. Parts go, the largest first, into the first micro-batch that has room.
    """
    families: dict[bytes, list[int]] = {}
    for index in indices:
        families.setdefault(rows[index].prompt_token_ids.tobytes(), []).append(index)
    parts = [part for family in families.values() for part in _cut_family(rows, family, max_tokens)]
    return _first_fit([(_family_tokens(rows, part), part) for part in parts], max_tokens)


def _cut_family(rows: Sequence[SequenceRow], family: Sequence[int], max_tokens: int) -> list[list[int]]:
    if _family_tokens(rows, family) <= max_tokens:
        return [list(family)]
    room = max_tokens - rows[family[0]].prompt_token_ids.size
    return _first_fit([(_input_tokens(rows[index]), [index]) for index in family], room)


def _first_fit(parts: Sequence[tuple[int, list[int]]], room: int) -> list[list[int]]:
    """Parts of so many tokens, joined to as few lists as first-fit decreasing finds. Each is ordered by row."""
    bins: list[list[int]] = []
    sizes: list[int] = []
    for num_tokens, part in sorted(parts, key=lambda part: (-part[0], part[1][0])):
        place = next((at for at, size in enumerate(sizes) if size + num_tokens <= room), None)
        if place is None:
            bins.append(list(part))
            sizes.append(num_tokens)
        else:
            bins[place].extend(part)
            sizes[place] += num_tokens
    return [sorted(each) for each in bins]


def _plain_tokens(row: SequenceRow) -> int:
    return row.prompt_token_ids.size + _input_tokens(row)


def _family_tokens(rows: Sequence[SequenceRow], family: Sequence[int]) -> int:
    return rows[family[0]].prompt_token_ids.size + sum(_input_tokens(rows[index]) for index in family)


def _input_tokens(row: SequenceRow) -> int:
    """A completion's last token predicts nothing, so the model does not read it."""
    return row.num_tokens - 1
