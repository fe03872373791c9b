"""From the parts of a reward to the reward: a weighted sum of what applies. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from functions.reward.outcome import Asked, Outcome, Rewarded
from shared.contracts.completion import SampleId
from shared.contracts.errors import RewardFailed
from shared.contracts.reward import PartSummary, RewardPart, RewardSpec, Score, SumReward

RAW_CORRECTNESS = "acc"
"""verl's name for it in a function's dict result, beside a shaped ``score``."""


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """One part, and what it said."""

    part: RewardPart
    outcomes: Mapping[SampleId, Outcome]
    failures: Mapping[str, RewardFailed]


def parts_of(reward: RewardSpec) -> tuple[RewardPart, ...]:
    """The addends; a single reward is the only one, under its own name."""
    if isinstance(reward, SumReward):
        return reward.parts
    return (RewardPart(name=reward.name, reward=reward),)


def combine(
    asked: Asked, scored: Sequence[ScoredPart], *, dropped: Collection[str]
) -> tuple[tuple[Score, ...], dict[str, RewardFailed]]:
    """The scores of the rows that are not dropped, and the errors of those with a completion that no part applies to.

    ``reward = Σ weight · value`` over the parts that apply to the completion; the weights are not normalised.
    """
    scores: list[Score] = []
    without: dict[str, RewardFailed] = {}
    for prompt, completion in asked:
        if prompt.row_uid in dropped:
            continue
        said = _said(completion.id, scored)
        if said:
            scores.append(_score(completion.id, said, is_sum=len(scored) > 1))
        else:
            without.setdefault(prompt.row_uid, _not_applicable(completion.id, scored))
    return tuple(score for score in scores if score.row_uid not in without), without


def flat_rows(scores: Sequence[Score], scored: Sequence[ScoredPart]) -> tuple[str, ...]:
    """Rows whose completions are all equally correct, so that a group's advantages carry nothing but shaping.

    Correctness is the weighted sum without ``shaping`` parts. A function that reports ``acc`` says it by that, since
    what it calls its score may be shaped.
    """
    correct = [part for part in scored if not part.part.shaping]
    flat = []
    for row_uid, group in groupby(scores, key=lambda score: score.row_uid):
        raw = {
            sum(part.part.weight * _correctness(outcome) for part, outcome in _said(id_, correct))
            for id_ in (SampleId(row_uid, score.sample) for score in group)
        }
        if len(raw) == 1:
            flat.append(row_uid)
    return tuple(flat)


def summarise(scores: Sequence[Score]) -> tuple[PartSummary, ...]:
    """Each entry of ``reward_parts`` over the scored completions, by name."""
    names = sorted({name for score in scores for name in score.reward_parts})
    summaries = []
    for name in names:
        values = [score.reward_parts[name] for score in scores if name in score.reward_parts]
        summaries.append(
            PartSummary(
                name=name,
                num_scored=len(values),
                num_none=len(scores) - len(values),
                mean=sum(values) / len(values),
            )
        )
    return tuple(summaries)


def _said(id_: SampleId, scored: Sequence[ScoredPart]) -> list[tuple[ScoredPart, Rewarded]]:
    found = [(part, part.outcomes[id_]) for part in scored]
    return [(part, outcome) for part, outcome in found if isinstance(outcome, Rewarded)]


def _score(id_: SampleId, said: Sequence[tuple[ScoredPart, Rewarded]], *, is_sum: bool) -> Score:
    parts: dict[str, float] = {}
    for part, outcome in said:
        name = part.part.name
        if is_sum:
            parts[name] = outcome.reward
            parts |= {f"{name}/{inner}": value for inner, value in outcome.parts.items() if inner != "score"}
        else:
            parts |= dict(outcome.parts) or {name: outcome.reward}
    return Score(
        row_uid=id_.row_uid,
        sample=id_.sample,
        reward=sum(part.part.weight * outcome.reward for part, outcome in said),
        reward_parts=parts,
        answer=next((outcome.answer for _, outcome in said if outcome.answer is not None), None),
    )


def _correctness(outcome: Rewarded) -> float:
    return outcome.parts.get(RAW_CORRECTNESS, outcome.reward)


def _not_applicable(id_: SampleId, scored: Sequence[ScoredPart]) -> RewardFailed:
    names = ", ".join(repr(part.part.name) for part in scored)
    which = f"The reward {names} is" if len(scored) == 1 else f"The rewards {names} are"
    return RewardFailed(
        f"{which} not applicable to row {id_.row_uid}, sample {id_.sample} (None was returned), and there is no other: "
        'return a number, leave such rows out of the data set, or drop their groups with on_failure="drop_group".',
        row_uid=id_.row_uid,
        sample=id_.sample,
    )
