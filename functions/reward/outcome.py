"""What is scored, and what scoring one completion gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.contracts.completion import SampleId
from shared.contracts.errors import RewardFailed
from shared.contracts.prompt import Prompt


class CompletionText(NamedTuple):
    """One completion as a reward sees it: decoded text, and the token ids it was decoded from."""

    id: SampleId
    text: str
    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarded:
    """A finite reward. ``parts`` holds its named components; empty when the reward is its own only part."""

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None
    """What was taken for the completion's answer."""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The reward has nothing to say about this completion. A type of its own, so that it is never a 0."""


Outcome = Rewarded | NotApplicable

Asked = Sequence[tuple[Prompt, CompletionText]]
"""Each completion with its row, sorted by (row, sample)."""

Scored = tuple[dict[SampleId, Outcome], dict[str, RewardFailed]]
"""Outcomes by sample, and the failed rows by uid. A failed row's outcomes may be missing, in part or all of them."""
