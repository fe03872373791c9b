"""``reference``: the frozen policy that a KL term compares with."""

from typing import Annotated

from pydantic import Field

from controller.runs.config.section import Section


class ReferenceModelConfig(Section):
    """Which weights are frozen."""

    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Model folder or hub id. Default null: the policy as the run found it (version 0). Its tokenizer must be the
    policy's."""


class ReferenceConfig(Section):
    """The reference policy. It is asked only where a KL term needs it."""

    model: ReferenceModelConfig = ReferenceModelConfig()
    log_prob_max_token_len_per_gpu: int | None = Field(ge=1, le=2**26, default=None)
    """Tokens of one forward pass. Default null: twice ``actor.ppo_max_token_len_per_gpu``, since nothing is kept for a
    backward pass."""
