from contextlib import AbstractContextManager, nullcontext

import pytest

from functions.learner.ranks.group import OneRank
from functions.learner.ranks.rounds import Rounds
from shared.training.time_budget import PassKind
from tests.unit.functions.learner.builders import make_row
from tests.unit.functions.learner.learner import Passes

# One prompt token each, and 1 to 5 of completion.
ROWS = [make_row("a", s, prompt=(1,), completion=(3,) * (s + 1)) for s in range(5)]
ALONE = [[0], [1], [2], [3], [4]]


class Member(OneRank):
    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size


class Asked:
    """A budget that remembers what it was asked for."""

    def __init__(self) -> None:
        self.questions: list[tuple[PassKind, int]] = []

    def fits(self, kind: PassKind, num_tokens: int) -> bool:
        self.questions.append((kind, num_tokens))
        return True

    def measure(self, kind: PassKind, num_tokens: int) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_micro_batch_counts_on_exactly_one_rank(size: int) -> None:
    counted, ends = [], set()
    for rank in range(size):
        rounds = Rounds(ROWS, Member(rank, size))
        shares = list(rounds.through(ALONE, start=1, kind="training"))
        counted += [index for share, _ in shares if share.counts for index in share.indices]
        ends.add(tuple(end for _, end in shares))
        assert rounds.num_passes == 4

    assert sorted(counted) == [1, 2, 3, 4]
    # All go through the same rounds.
    assert len(ends) == 1
    assert ends.pop()[-1] == 5


def test_the_largest_of_a_round_must_fit() -> None:
    budget = Asked()
    list(Rounds(ROWS, Member(0, 2), budget).through(ALONE, start=0, kind="scoring"))

    assert budget.questions == [("scoring", 3), ("scoring", 5), ("scoring", 6)]


def test_it_ends_where_the_budget_does() -> None:
    rounds = Rounds(ROWS, Member(1, 2), Passes(2))

    assert [end for _, end in rounds.through(ALONE, start=0, kind="training")] == [2, 4]
    assert rounds.num_passes == 4


def test_what_fails_was_no_pass() -> None:
    rounds = Rounds(ROWS)

    def fail() -> None:
        for _ in rounds.through(ALONE, start=0, kind="training"):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert rounds.num_passes == 0
