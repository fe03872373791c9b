"""Parts to rewards: weights, parts that do not apply, flat groups."""

import pytest

from functions.reward.outcome import CompletionText, NotApplicable, Outcome, Rewarded
from functions.reward.weighted_sum import ScoredPart, combine, flat_rows, parts_of, summarise
from shared.contracts.completion import SampleId
from shared.contracts.prompt import Prompt
from shared.contracts.reward import RewardPart, RuleReward, Score, SumReward

RULE = RuleReward(name="exact_match")
ASKED = [
    (Prompt(row_uid=row, token_ids=(1,), text="?"), CompletionText(SampleId(row, sample), "", (1,)))
    for row in "ab"
    for sample in range(2)
]


def part(name: str, values: list[float | Outcome | None], *, weight: float = 1.0, shaping: bool = False) -> ScoredPart:
    outcomes: dict[SampleId, Outcome] = {}
    for (_, completion), value in zip(ASKED, values, strict=True):
        if value is None:
            outcomes[completion.id] = NotApplicable()
        else:
            outcomes[completion.id] = Rewarded(reward=value) if isinstance(value, float) else value
    return ScoredPart(RewardPart(name=name, weight=weight, shaping=shaping, reward=RULE), outcomes, {})


def scores_of(*scored: ScoredPart, dropped: tuple[str, ...] = ()) -> tuple[Score, ...]:
    scores, without = combine(ASKED, scored, dropped=dropped)
    assert not without
    return scores


def test_a_part_that_does_not_apply_is_left_out_and_is_no_zero() -> None:
    correct, style = part("correct", [1.0, 0.0, None, 1.0]), part("style", [0.5, None, 0.25, 0.0], weight=2.0)
    scores = scores_of(correct, style)
    assert [score.reward for score in scores] == [2.0, 0.0, 0.5, 1.0]
    assert [score.reward_parts for score in scores] == [
        {"correct": 1.0, "style": 0.5},
        {"correct": 0.0},
        {"style": 0.25},
        {"correct": 1.0, "style": 0.0},
    ]
    assert [(entry.name, entry.num_scored, entry.num_none, entry.mean) for entry in summarise(scores)] == [
        ("correct", 3, 1, pytest.approx(2 / 3)),
        ("style", 3, 1, 0.25),
    ]


def test_a_completion_that_no_part_applies_to_is_a_failure_of_its_row() -> None:
    scores, without = combine(ASKED, [part("x", [1.0, 1.0, 1.0, None]), part("y", [1.0, 1.0, 1.0, None])], dropped=())
    assert [(score.row_uid, score.sample) for score in scores] == [("a", 0), ("a", 1)]
    assert list(without) == ["b"]
    assert "row b, sample 1" in without["b"].message


def test_dropped_rows_are_not_looked_at() -> None:
    scored = ScoredPart(RewardPart(name="x", reward=RULE), {SampleId("a", i): Rewarded(reward=1.0) for i in (0, 1)}, {})
    assert [score.row_uid for score in scores_of(scored, dropped=("b",))] == ["a", "a"]


def test_parts_of_a_dict_stand_under_their_part_and_the_first_answer_is_kept() -> None:
    told = Rewarded(reward=0.5, parts={"score": 0.5, "format": 1.0}, answer="7")
    alone = scores_of(part("f", [told] * 4))
    summed = scores_of(part("f", [told] * 4), part("g", [1.0] * 4))
    assert alone[0].reward_parts == {"score": 0.5, "format": 1.0}
    assert summed[0].reward_parts == {"f": 0.5, "f/format": 1.0, "g": 1.0}
    assert (alone[0].answer, summed[0].answer) == ("7", "7")


def test_flat_rows_are_those_of_equal_correctness_whatever_their_shaping() -> None:
    correct = part("correct", [1.0, 1.0, 1.0, 0.0])
    length = part("length", [0.1, 0.7, 0.3, 0.3], shaping=True)
    scored = (correct, length)
    assert flat_rows(scores_of(*scored), scored) == ("a",)
    as_it_counts = (correct, part("length", [0.1, 0.7, 0.3, 0.3]))
    assert flat_rows(scores_of(*as_it_counts), as_it_counts) == ()


def test_a_function_tells_raw_correctness_as_acc() -> None:
    shaped: list[float | Outcome | None] = [
        Rewarded(reward=reward, parts={"score": reward, "acc": acc})
        for reward, acc in [(0.9, 1.0), (0.8, 1.0), (0.5, 1.0), (0.5, 0.0)]
    ]
    scored = (part("f", shaped),)
    assert flat_rows(scores_of(*scored), scored) == ("a",)


def test_a_single_reward_is_the_only_part_under_its_name() -> None:
    assert parts_of(RULE) == (RewardPart(name="exact_match", reward=RULE),)
    parts = (RewardPart(name="x", reward=RULE), RewardPart(name="y", reward=RULE))
    assert parts_of(SumReward(parts=parts)) == parts
