"""Turns are the runs of sampled tokens."""

import pytest

from functions.rollout.engine import GeneratedTokens
from functions.rollout.turns.spans import insertions, last_turn, turn_starts


@pytest.mark.parametrize(
    ("mask", "starts", "last", "inserted"),
    [
        ("", (0,), "", []),
        ("xx", (0,), "ab", []),
        ("xx..", (0,), "", ["cd"]),
        ("x..x", (0, 3), "d", ["bc"]),
        ("x.xx..x", (0, 2, 6), "g", ["b", "ef"]),
    ],
)
def test_spans(mask: str, starts: tuple[int, ...], last: str, inserted: list[str]) -> None:
    generated = GeneratedTokens(
        token_ids=tuple(range(len(mask))), loss_mask=tuple(character == "x" for character in mask)
    )
    letters = "abcdefg"
    assert turn_starts(generated.loss_mask) == starts
    assert "".join(letters[token_id] for token_id in last_turn(generated)) == last
    assert ["".join(letters[token_id] for token_id in span) for span in insertions(generated)] == inserted
