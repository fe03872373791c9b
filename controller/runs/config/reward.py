"""``reward``: what a completion is worth."""

from typing import Annotated, Literal

from pydantic import Field

from controller.runs.config.section import Section
from shared.contracts.reward import RuleName


class CustomRewardFunction(Section):
    """A function of the user's, with verl's or TRL's signature."""

    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Python file, under the configured roots. Default null: ``reward.rule`` is used."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", default="compute_score")
    """Function in that file. Default compute_score, as in verl."""


class RewardConfig(Section):
    """Either a built-in rule or a function, and what happens when it fails."""

    rule: RuleName | None = None
    """Name of a built-in verifier. Default null: ``reward.custom_reward_function``; exactly one is given."""
    custom_reward_function: CustomRewardFunction = CustomRewardFunction()
    timeout_s: float = Field(gt=0, le=86_400, default=30.0)
    """Seconds that the reward of one completion may take. Default 30: a slow check passes, a hang is found."""
    num_attempts: int = Field(ge=1, le=100, default=3)
    """Tries before a failure counts. Default 3: a hiccup of a remote judge does not end a run."""
    on_failure: Literal["fail", "drop_group"] = "fail"
    """After the last try: the run fails naming the prompt, or the group is left out and counted. Default fail. A
    failure is never a score of 0."""
