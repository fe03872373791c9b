"""``data``: which rows, how many at once, how long."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

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

_OWN_VARIABLES = ("messages", "add_generation_prompt", "tools", "documents")


def _free_variables(variables: dict[str, Any]) -> dict[str, Any]:
    for name in _OWN_VARIABLES:
        if name in variables:
            raise ValueError(f"{name} is not free: prompts end where the completion begins, and have no tools")
    return variables


Variables = Annotated[dict[str, Any], AfterValidator(_free_variables)]
"""Variables of a chat template, by name."""

Share = Annotated[int, Field(ge=1, strict=True)] | Annotated[float, Field(gt=0, lt=1)]
"""So many rows, or a part of them."""


class DataConfig(Section):
    """The rows of training and evaluation."""

    train_files: Files
    """Files of training rows (JSONL, JSON, CSV, parquet, or a folder of ``save_to_disk``), one path or a list, read in
    this order. Also ``dataset://ID`` for an uploaded dataset and, where the controller's settings allow a hub,
    ``hf://datasets/ORG/NAME/FILE``, with ``*`` for several. No default."""
    val_files: Files | None = None
    """Files of held-out rows. Default null: nothing is evaluated, unless ``val_split`` is given."""
    val_split: Share | None = None
    """Held-out rows that are taken away from the training rows: a number of rows, or a part of them such as 0.05. Which
    ones depends on ``seed`` and their prompts alone; rows with the same prompt stay together. Default null: none."""
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
    """Column of the prompt (text or chat messages), also as ``data.columns.prompt``. Default null: recognised
    (``prompt``, ``question``, ``input``)."""
    answer_key: Key | None = None
    """Column of the ground truth, also as ``data.columns.ground_truth``. Default null: recognised
    (``reward_model.ground_truth``, ``ground_truth``, ``answer``, ``label``, ``solution``)."""
    reward_fn_key: Key | None = None
    """Column of the data source, by which reward functions and metrics tell rows apart, also as
    ``data.columns.data_source``. Default null: recognised (``data_source``, ``task``)."""
    apply_chat_template: bool = False
    """Whether a prompt that is plain text becomes a user's message in the model's chat template. Default false: text is
    taken as it is. Chat messages always go through the template."""
    apply_chat_template_kwargs: Variables = Field(default_factory=dict)
    """Further variables of the chat template, such as ``{enable_thinking: false}``. Default: none."""
    system_prompt: Annotated[str, Field(min_length=1, max_length=2**16)] | None = None
    """System message before the chat messages of rows that have none of their own. Default null: none."""
    shuffle: bool = True
    """Whether each epoch is a new permutation of the rows. Default true: neighbours in a file are often alike."""
    seed: int | None = Field(ge=0, lt=2**63, default=None)
    """Seed of the permutations. Default null: ``trainer.seed``, so one number repeats the whole run."""
    filter_overlong_prompts: bool = False
    """Whether prompts that are too long are left out and counted. Default false: they are refused, since a run should
    not lose rows unasked. Prompts are never truncated."""

    @property
    def has_heldout(self) -> bool:
        """Whether there is something to evaluate on."""
        return self.val_files is not None or self.val_split is not None
