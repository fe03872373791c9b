"""Where tokens stand in the shared pass, and how little of it is padding."""

import numpy as np
import torch

from functions.learner.rows import TrainRow
from shared.training.prompt_layout import SharedPromptLayout, build_layout
from tests.unit.functions.learner.builders import make_row, ragged_rows

CPU = torch.device("cpu")


def test_each_distinct_prompt_is_held_once_whatever_group_it_is_of() -> None:
    rows = [
        make_row("a", 0, prompt=(1, 2), completion=(5, 6, 7)),
        make_row("b", 0, prompt=(1, 2), completion=(8,)),
        make_row("c", 0, prompt=(3,), completion=(9, 9)),
    ]

    layout = build_layout(rows, CPU)

    assert layout.token_ids.tolist() == [1, 2, 3, 5, 6, 9]
    assert layout.position_ids.tolist() == [0, 1, 0, 2, 3, 1]
    assert layout.predictors.tolist() == [1, 3, 4, 1, 2, 5]


def test_masked_tokens_are_seen_but_not_predicted() -> None:
    row = make_row(prompt=(1,), completion=(5, 6, 7), loss_mask=np.array([True, False, True]))

    layout = build_layout([row], CPU)

    assert layout.token_ids.tolist() == [1, 5, 6]
    assert layout.predictors.tolist() == [0, 2]


def seen_by(layout: SharedPromptLayout) -> dict[int, set[int]]:
    """Slots that each slot attends to, read off the blocks; the output slots say which query is real."""
    queries = [block.query_slots.flatten() for block in layout.blocks]
    place_of = torch.cat(queries)
    seen: dict[int, set[int]] = {}
    offset = 0
    real = set(layout.output_slots.tolist())
    for block in layout.blocks:
        segments, length = block.query_slots.shape
        mask = block.key_mask
        if mask is None:
            mask = torch.ones(length, block.key_slots.shape[1], dtype=torch.bool).tril()[None, None]
        mask = mask.expand(segments, 1, *mask.shape[2:])
        for b in range(segments):
            for q in range(length):
                place = offset + b * length + q
                if place in real:
                    keys = block.key_slots[b][mask[b, 0, q]].tolist()
                    assert len(keys) == len(set(keys)), "a key that is counted twice"
                    seen[int(place_of[place])] = set(keys)
        offset += segments * length
    return seen


def test_every_token_sees_its_prompt_and_its_own_past_and_nothing_else() -> None:
    rows = ragged_rows(num_groups=3, max_prompt=90, max_completion=120)
    layout = build_layout(rows, CPU)
    prompts: dict[bytes, range] = {}
    start = 0
    for row in rows:
        key = row.prompt_token_ids.tobytes()
        if key not in prompts:
            prompts[key] = range(start, start + row.prompt_token_ids.size)
            start += row.prompt_token_ids.size
    expected = {slot: set(range(prompt.start, slot + 1)) for prompt in prompts.values() for slot in prompt}
    for row in rows:
        own = range(start, start + row.num_tokens - 1)
        prompt = set(prompts[row.prompt_token_ids.tobytes()])
        expected |= {slot: prompt | set(range(own.start, slot + 1)) for slot in own}
        start = own.stop

    assert len(layout.blocks) > 2
    assert seen_by(layout) == expected


def computed_pairs(layout: SharedPromptLayout) -> int:
    return sum(block.query_slots.numel() * block.key_slots.shape[1] for block in layout.blocks)


def test_ragged_rows_cost_little_padding() -> None:
    rows = ragged_rows(num_groups=8, group_size=8, max_prompt=400, max_completion=300)
    layout = build_layout(rows, CPU)
    prompts = {row.prompt_token_ids.tobytes(): row.prompt_token_ids.size for row in rows}
    real = sum(size**2 for size in prompts.values())
    real += sum((row.num_tokens - 1) * (row.prompt_token_ids.size + row.num_tokens - 1) for row in rows)

    assert len(layout.blocks) < 24
    assert computed_pairs(layout) < 1.25 * real


def test_equal_lengths_are_one_block_of_prompts_and_one_of_completions() -> None:
    rows: list[TrainRow] = [
        make_row(str(group), sample, prompt=(group,) * 40, completion=(1,) * 30)
        for group in range(5)
        for sample in range(3)
    ]

    layout = build_layout(rows, CPU)

    assert [tuple(block.query_slots.shape) for block in layout.blocks] == [(5, 40), (15, 29)]
    assert layout.blocks[1].key_mask is not None
    assert layout.blocks[1].key_mask.shape[0] == 1
