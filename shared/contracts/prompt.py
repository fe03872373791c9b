"""controller → rollout, reward, learner: the prompts of one batch."""

from typing import Any

from pydantic import Field

from shared.contracts.wire import Wire


class Prompt(Wire):
    """One data row, tokenised once by the controller: what is sampled from is what is trained on."""

    row_uid: str = Field(min_length=1, max_length=128)
    token_ids: tuple[int, ...] = Field(min_length=1)
    text: str
    """The prompt as the reward function sees it."""
    messages: tuple[dict[str, Any], ...] | None = None
    """The chat messages the prompt was rendered from, where the row has them."""
    data_source: str = ""
    ground_truth: str | None = None
    columns: dict[str, Any] = Field(default_factory=dict)
    """The row's further columns, passed to reward functions by name."""


class PromptBatch(Wire):
    """The prompts of one batch, in schedule order. Stored as a JSON blob; calls name it by reference."""

    prompts: tuple[Prompt, ...]
