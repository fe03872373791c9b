"""``critic``: how values are learned. Only PPO (``algorithm.adv_estimator: gae``) has a critic."""

from typing import Annotated, Literal

from pydantic import Field

from controller.runs.config.actor import ActorOptimConfig
from controller.runs.config.section import Section


class CriticOptimConfig(ActorOptimConfig):
    """AdamW of the critic."""

    lr: float = Field(gt=0, default=1e-5)
    """Peak learning rate. Default 1e-5, verl's: ten times the actor's, for a head that starts from nothing."""


class CriticModelConfig(Section):
    """What the critic starts from."""

    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Model folder or hub id whose body gets a value head. Default null: ``model.path``. Its tokenizer must be the
    policy's."""


class CriticConfig(Section):
    """The value function and its update."""

    model: CriticModelConfig = CriticModelConfig()
    optim: CriticOptimConfig = CriticOptimConfig()
    cliprange_value: float | None = Field(gt=0, default=0.5)
    """How far a value may move from the one that the advantages were computed with; null does not clip. Default 0.5,
    as in verl."""
    loss_agg_mode: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"] = "token-mean"
    """How the tokens' value losses become one number. Default token-mean, as in verl. There is no constant normaliser,
    which belongs to policy gradients."""
    ppo_epochs: int | None = Field(ge=1, le=1000, default=None)
    """Passes over a step's rollouts. Default null: ``actor.ppo_epochs``."""
    ppo_mini_batch_size: int | None = Field(ge=1, le=2**20, default=None)
    """Prompts per value update. Default null: ``actor.ppo_mini_batch_size``."""
    grad_clip: float = Field(gt=0, default=1.0)
    """Largest norm of the gradient. Default 1, as everywhere."""
    ppo_max_token_len_per_gpu: int | None = Field(ge=1, le=2**26, default=None)
    """Tokens of one micro-batch, never the gradient; values take twice as many at once. Default null:
    ``actor.ppo_max_token_len_per_gpu``."""
