"""Scores a reward call's completions: one finite reward for each, or a typed error."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from functions.reward.allowed_hosts import AllowedHosts
from functions.reward.code_reward import CodeRewards
from functions.reward.model_reward import Compute, score_by_model
from functions.reward.outcome import Asked, CompletionText, Outcome, Scored
from functions.reward.remote_reward import RemoteRewards
from functions.reward.rules.base import BadGroundTruth, Rule
from functions.reward.rules.registry import UNBOUNDED, rule_named
from functions.reward.user_function import UserFunctions
from functions.reward.weighted_sum import ScoredPart, combine, parts_of
from shared.contracts.completion import SampleId
from shared.contracts.errors import InvalidInput
from shared.contracts.prompt import Prompt
from shared.contracts.reward import (
    FunctionReward,
    ModelReward,
    RemoteReward,
    RewardInputs,
    RewardPart,
    RuleReward,
    Scores,
)
from shared.service.together import together

logger = logging.getLogger(__name__)

_NAMED_IN_MESSAGE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """The scores, and what each part said."""

    scores: Scores
    parts: tuple[ScoredPart, ...]
    failed_rows: tuple[str, ...]
    """Of the dropped rows, those with an error: to the others no part applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeans:
    """What a reward model needs of the call."""

    check: Callable[[ModelReward], str]
    """The folder or hub id that may be loaded. Raises InvalidInput."""
    compute: Compute
    threads: int


class Scorer:
    """Whatever can score, for the life of a replica."""

    def __init__(
        self, *, roots: Sequence[Path], environ: Mapping[str, str], allowed_hosts: Sequence[str], secrets_folder: Path
    ) -> None:
        self._functions = UserFunctions(roots=roots, environ=environ)
        self._code = CodeRewards(environ)
        self._remote = RemoteRewards(allowed=AllowedHosts.parse(allowed_hosts), secrets_folder=secrets_folder)

    async def score(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[CompletionText],
        inputs: RewardInputs,
        *,
        models: ModelMeans,
    ) -> Scoring:
        """Rewards of ``inputs.row_uids`` x ``inputs.num_samples`` completions, sorted by (row, sample).

        ``prompts`` may hold further rows; ``completions`` are exactly those asked for, in any order. ``reward_parts``
        has the parts that the reward names, or the reward itself under its name.

        Raises InvalidInput for completions or rows that are missing, unknown or twice there, an unknown rule, a ground
        truth that the rule cannot use and a reward that cannot be asked; RewardFailed or RewardTimeout when a
        completion has no reward after ``inputs.num_attempts``. With ``on_failure="drop_group"`` the rows of the latter
        are listed in ``dropped_rows`` instead, and have no scores at all. A failure is never a 0.
        """
        asked = match_completions(prompts, completions, inputs)
        parts = parts_of(inputs.reward)
        found = await together(self._score_part(part, asked, inputs, models) for part in parts)
        scored = tuple(ScoredPart(part, *result) for part, result in zip(parts, found, strict=True))
        failed = {row: error for part in reversed(scored) for row, error in part.failures.items()}
        if failed and inputs.on_failure == "fail":
            raise failed[min(failed)]
        scores, without = combine(asked, scored, dropped=failed.keys())
        if without and inputs.on_failure == "fail":
            raise without[min(without)]
        for failure in (*failed.values(), *without.values()):
            logger.warning("dropped a group: %s", failure.message)
        return Scoring(
            scores=Scores(scores=scores, dropped_rows=tuple(sorted(failed.keys() | without.keys()))),
            parts=scored,
            failed_rows=tuple(sorted(failed)),
        )

    async def close(self) -> None:
        """End the child processes."""
        await self._functions.close()

    async def _score_part(self, part: RewardPart, asked: Asked, inputs: RewardInputs, models: ModelMeans) -> Scored:
        match part.reward:
            case RuleReward(name="code") as reward:
                return await self._code.score(asked, inputs, reward)
            case RuleReward() as reward if reward.name in UNBOUNDED:
                return await self._functions.score_by_rule(asked, inputs, reward)
            case RuleReward(name=name, parameters=parameters):
                # In a thread, so that heartbeats go on whatever the batch is.
                return await asyncio.to_thread(_apply_rule, rule_named(name, parameters), asked), {}
            case FunctionReward() as reward:
                return await self._functions.score(asked, inputs, reward)
            case ModelReward() as reward:
                path = models.check(reward)
                return await score_by_model(asked, reward, path, models.compute, threads=models.threads)
            case RemoteReward() as reward:
                return await self._remote.score(asked, inputs, reward)


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


def _apply_rule(rule: Rule, asked: Asked) -> dict[SampleId, Outcome]:
    outcomes: dict[SampleId, Outcome] = {}
    for prompt, completion in asked:
        try:
            outcome = rule(completion.text, prompt.ground_truth, prompt.text, prompt.columns)
        except BadGroundTruth as error:
            raise InvalidInput(f"Row {prompt.row_uid}: {error}", row_uid=prompt.row_uid) from error
        outcomes[completion.id] = outcome
    return outcomes
