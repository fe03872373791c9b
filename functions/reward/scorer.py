"""Scores a reward call's completions: one finite reward for each, or a typed error."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from functions.reward.outcome import CompletionText, NotApplicable, Outcome
from functions.reward.rules.base import BadGroundTruth, Rule
from functions.reward.rules.registry import rule_named
from functions.reward.user_function import UserFunctions
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput, RewardFailed
from shared.contracts.prompt import Prompt
from shared.contracts.reward import FunctionReward, RewardInputs, RuleReward, Score, Scores

logger = logging.getLogger(__name__)

_NAMED_IN_MESSAGE = 5


async def score(
    prompts: Sequence[Prompt],
    completions: Sequence[CompletionText],
    inputs: RewardInputs,
    *,
    user_functions: UserFunctions,
) -> Scores:
    """Rewards of ``inputs.row_uids`` x ``inputs.num_samples`` completions, sorted by (row, sample).

    ``prompts`` may hold further rows; ``completions`` are exactly those asked for, in any order. ``reward_parts``
    has the parts that the reward names, or the reward itself under its name.

    Raises InvalidInput for completions or rows that are missing, unknown or twice there, an unknown rule, a ground
    truth that the rule cannot use and a function that cannot be called; RewardFailed or RewardTimeout when a
    completion has no reward after ``inputs.num_attempts``. With ``on_failure="drop_group"`` the rows of the latter
    are listed in ``dropped_rows`` instead, and have no scores at all. A failure is never a 0.
    """
    asked = match_completions(prompts, completions, inputs)
    match inputs.reward:
        case RuleReward(name=name):
            # In a thread, so that heartbeats go on whatever the batch is.
            outcomes = await asyncio.to_thread(_apply_rule, rule_named(name), asked)
            failures: dict[str, RewardFailed] = {}
        case FunctionReward() as reward:
            outcomes, failures = await user_functions.score(asked, inputs, reward)
    failures = _without_reward(outcomes, inputs.reward.name) | failures
    if failures and inputs.on_failure == "fail":
        raise failures[min(failures)]
    for failure in failures.values():
        logger.warning("dropped a group: %s", failure.message)
    return Scores(
        scores=tuple(
            _to_score(completion.id, outcomes[completion.id], inputs.reward.name)
            for prompt, completion in asked
            if prompt.row_uid not in failures
        ),
        dropped_rows=tuple(sorted(failures)),
    )


def match_completions(
    prompts: Sequence[Prompt], completions: Sequence[CompletionText], inputs: RewardInputs
) -> list[tuple[Prompt, CompletionText]]:
    """Each completion asked for with its row, sorted by (row, sample). Raises InvalidInput naming what is amiss."""
    _refuse_repeated("rows are asked for", inputs.row_uids)
    _refuse_repeated("prompts have the row uid", [prompt.row_uid for prompt in prompts])
    _refuse_repeated("completions have the id", [str(completion.id) for completion in completions])
    by_row = {prompt.row_uid: prompt for prompt in prompts}
    by_id = {completion.id: completion for completion in completions}
    _refuse("rows have no prompt in this batch", sorted(set(inputs.row_uids) - by_row.keys()))
    expected = sorted(SampleId(row, sample) for row in inputs.row_uids for sample in range(inputs.num_samples))
    _refuse("completions are missing", [id_ for id_ in expected if id_ not in by_id])
    _refuse("completions were not asked for", sorted(by_id.keys() - set(expected)))
    return [(by_row[id_.row_uid], by_id[id_]) for id_ in expected]


def _refuse_repeated(what: str, names: Sequence[str]) -> None:
    _refuse(f"{what} more than once", [name for name, count in Counter(names).items() if count > 1])


def _refuse(what: str, names: Sequence[object]) -> None:
    if names:
        more = f" and {len(names) - _NAMED_IN_MESSAGE} more" if len(names) > _NAMED_IN_MESSAGE else ""
        raise InvalidInput(f"Some {what}: {', '.join(map(str, names[:_NAMED_IN_MESSAGE]))}{more}.", num=len(names))


def _apply_rule(rule: Rule, asked: Sequence[tuple[Prompt, CompletionText]]) -> dict[SampleId, Outcome]:
    outcomes: dict[SampleId, Outcome] = {}
    for prompt, completion in asked:
        try:
            outcome = rule(completion.text, prompt.ground_truth, prompt.text, prompt.columns)
        except BadGroundTruth as error:
            raise InvalidInput(f"Row {prompt.row_uid}: {error}", row_uid=prompt.row_uid) from error
        outcomes[completion.id] = outcome
    return outcomes


def _without_reward(outcomes: dict[SampleId, Outcome], name: str) -> dict[str, RewardFailed]:
    """Rows with a completion that the run's only reward does not apply to."""
    return {
        id_.row_uid: RewardFailed(
            f"The reward {name!r} is not applicable to row {id_.row_uid}, sample {id_.sample} (it returned None), "
            "and there is no other: return a number, leave such rows out of the data set, "
            'or drop their groups with on_failure="drop_group".',
            row_uid=id_.row_uid,
            sample=id_.sample,
        )
        for id_, outcome in outcomes.items()
        if isinstance(outcome, NotApplicable)
    }


def _to_score(id_: SampleId, outcome: Outcome, name: str) -> Score:
    assert not isinstance(outcome, NotApplicable)
    return Score(
        row_uid=id_.row_uid,
        sample=id_.sample,
        reward=outcome.reward,
        reward_parts=dict(outcome.parts) or {name: outcome.reward},
    )
