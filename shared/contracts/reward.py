"""controller → reward: score the completions of some rows."""

from typing import Literal

from pydantic import Field

from shared.contracts.policy import BlobRef, ModelRef
from shared.contracts.wire import Wire

RuleName = Literal["exact_match", "exact_number", "reasoning_gym"]
"""The built-in verifiers."""


class RuleReward(Wire):
    """A built-in verifier, by name."""

    kind: Literal["rule"] = "rule"
    name: RuleName


class FunctionReward(Wire):
    """A user's function from a file. verl's and TRL's signatures are recognised."""

    kind: Literal["function"] = "function"
    path: str
    name: str


class RewardInputs(Wire):
    """Which completions to score, and how."""

    prompts: BlobRef
    row_uids: tuple[str, ...] = Field(min_length=1)
    num_samples: int = Field(ge=1)
    """Completions per row; a missing one is an error."""
    model: ModelRef
    """Whose tokenizer turns token ids into text."""
    reward: RuleReward | FunctionReward = Field(discriminator="kind")
    timeout_s: float = Field(gt=0, default=30.0)
    """Limit for one completion."""
    num_attempts: int = Field(ge=1, default=3)
    on_failure: Literal["fail", "drop_group"] = "fail"


class Score(Wire):
    """The reward of one completion."""

    row_uid: str
    sample: int
    reward: float
    reward_parts: dict[str, float] = Field(default_factory=dict)


class Scores(Wire):
    """The scores of a reward call, sorted by (row, sample). Stored as a JSON blob."""

    scores: tuple[Score, ...]
    dropped_rows: tuple[str, ...] = ()
    """Rows whose group was left out since a reward failed (opt-in)."""


class RewardOutputs(Wire):
    """Reference to the scores, and their summary."""

    scores: BlobRef
    num_scored: int = Field(ge=0)
    num_dropped_groups: int = Field(ge=0, default=0)
    mean_reward: float
