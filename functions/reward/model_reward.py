"""Rewards by a reward model, as a part of a call. The model needs torch, which is imported when it is asked for."""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol, TypeVar

from functions.reward.outcome import Asked, CompletionText, Outcome, Rewarded, Scored
from shared.contracts.completion import SampleId
from shared.contracts.errors import RewardFailed
from shared.contracts.prompt import Prompt
from shared.contracts.reward import ModelReward

T = TypeVar("T")


class Compute(Protocol):
    """Runs a computation on the process's compute thread."""

    async def __call__(self, function: Callable[..., T], *arguments: object) -> T: ...


async def score_by_model(asked: Asked, reward: ModelReward, path: str, compute: Compute, *, threads: int) -> Scored:
    """Outcomes by sample, and the rows of texts that are too long or whose logit is no number.

    ``path`` is the checked folder or hub id. Raises RewardFailed without torch and transformers, InvalidInput for what
    is no reward model.
    """
    try:
        library = import_module("functions.reward.reward_model")
    except ImportError as error:
        raise RewardFailed(
            f"A reward model needs torch and transformers, and {error.name} is not installed: use an image with "
            "pip install 'rlhfless[functions]'"
        ) from error
    logits = await compute(_logits, library, path, asked, reward, threads)
    outcomes: dict[SampleId, Outcome] = {}
    failures: dict[str, RewardFailed] = {}
    for (prompt, completion), logit in zip(asked, logits, strict=True):
        if isinstance(logit, float) and math.isfinite(logit):
            outcomes[completion.id] = Rewarded(reward=logit)
        else:
            failures.setdefault(prompt.row_uid, _error(prompt, completion, logit))
    return outcomes, failures


def _logits(library: Any, path: str, asked: Asked, reward: ModelReward, threads: int) -> list[float | str]:
    """Each completion's logit, or why it has none."""
    model = library.load_reward_model(path)
    sequences = model.token_ids(asked)
    fitting = [index for index, ids in enumerate(sequences) if 0 < len(ids) <= reward.max_tokens]
    logits: Mapping[int, float] = dict(
        zip(
            fitting,
            model.score([sequences[index] for index in fitting], batch_tokens=reward.batch_tokens, threads=threads),
            strict=True,
        )
    )
    return [
        logits.get(index, f"it has {len(ids)} tokens, and the model reads 1 to {reward.max_tokens}")
        for index, ids in enumerate(sequences)
    ]


def _error(prompt: Prompt, completion: CompletionText, logit: float | str) -> RewardFailed:
    cause = logit if isinstance(logit, str) else f"its logit is {logit}"
    return RewardFailed(
        f"The reward model has no reward for row {prompt.row_uid}, sample {completion.id.sample}: {cause}.",
        row_uid=prompt.row_uid,
        sample=completion.id.sample,
        cause=cause,
    )
