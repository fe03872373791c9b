"""``trainer``: how long, how often, where to."""

from typing import Annotated

from pydantic import Field

from controller.runs.config.section import Section

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Safe as a folder's name."""


class TrainerConfig(Section):
    """The run as a whole. The run ends at ``total_training_steps`` or ``total_epochs``, whichever comes first."""

    total_training_steps: int | None = Field(ge=1, le=10**9, default=None)
    """Steps of the run. Default null: by ``total_epochs``."""
    total_epochs: int | None = Field(ge=1, le=10**6, default=None)
    """Passes over the training rows. Default null: by ``total_training_steps``. One of them must be given: no length
    fits every run."""
    save_freq: int = Field(ge=-1, le=10**9, default=-1)
    """Steps between checkpoints. Default -1 (or 0): only after the last step."""
    test_freq: int = Field(ge=-1, le=10**9, default=-1)
    """Steps between evaluations on ``data.val_files``. Default -1 (or 0): only after the last step."""
    val_before_train: bool = True
    """Whether version 0 is evaluated, given ``data.val_files``. Default true: a curve needs its first point."""
    project_name: Name = "rlhfless"
    """Groups runs in trackers and in the checkpoint folder. Default rlhfless."""
    experiment_name: Name | None = None
    """Names the run: its id, and so its checkpoint folder, begins with it. Default null: ids begin with ``run``."""
    seed: int = Field(ge=0, lt=2**63, default=42)
    """Seed of sampling and, unless ``data.seed`` is given, of the data order. Default 42, never random: every
    run can be repeated."""
    default_local_dir: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Checkpoint folder, under the configured roots; each run has its own in it, by project. Default null: in the
    controller's own folder."""
    max_ckpt_to_keep: int | None = Field(ge=1, le=10**9, default=None)
    """Newest checkpoints kept. Default null: all."""
