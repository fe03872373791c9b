"""``data``: which rows, how many at once, how long."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from controller.runs.config.section import Section


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Files = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
"""One path or several."""

Key = Annotated[str, Field(min_length=1, max_length=256)]
"""A column, with dots into nested columns: ``reward_model.ground_truth``."""


class DataConfig(Section):
    """The rows of training and evaluation."""

    train_files: Files
    """JSONL or parquet files of training rows, one path or a list, read in this order; where the controller's settings
    allow a hub, also ``hf://datasets/ORG/NAME/FILE``, with ``*`` for several. No default."""
    val_files: Files | None = None
    """Files of held-out rows. Default null: nothing is evaluated."""
    train_batch_size: int = Field(ge=1, le=2**20, default=32)
    """Prompts per step; a step has ``train_batch_size`` × ``rollout.n`` completions. Default 32: two hundred and
    fifty-six completions at the default group size, enough for a stable advantage on one small machine."""
    val_batch_size: int | None = Field(ge=1, le=2**20, default=None)
    """Prompts evaluated at once. Default null: all held-out rows, since nothing is trained on them."""
    max_prompt_length: int = Field(ge=1, le=2**20, default=512)
    """Longest prompt, in tokens. Default 512, as in verl."""
    max_response_length: int = Field(ge=1, le=2**20, default=512)
    """Longest completion, in tokens; one cut here has finish reason "length". Default 512, as in verl and TRL."""
    prompt_key: Key | None = None
    """Column of the prompt (text or chat messages). Default null: recognised (``prompt``, ``question``, ``input``)."""
    answer_key: Key | None = None
    """Column of the ground truth. Default null: recognised (``reward_model.ground_truth``, ``answer``, ``label``)."""
    shuffle: bool = True
    """Whether each epoch is a new permutation of the rows. Default true: neighbours in a file are often alike."""
    seed: int | None = Field(ge=0, lt=2**63, default=None)
    """Seed of the permutations. Default null: ``trainer.seed``, so one number repeats the whole run."""
    filter_overlong_prompts: bool = False
    """Whether prompts that are too long are left out and counted. Default false: they are refused, since a run should
    not lose rows unasked. Prompts are never truncated."""
