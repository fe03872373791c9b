"""``trainer``: how long, how often, where to."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from controller.runs.config.section import Section

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
"""Safe as a folder's name."""

Logger = Literal["console", "jsonl", "tensorboard", "wandb", "mlflow"]


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Loggers = Annotated[tuple[Logger, ...], BeforeValidator(_listed, json_schema_input_type=Logger | list[Logger])]
"""One tracker or several."""


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
    """Newest checkpoints kept. Default null: all; with ``keep_best``, only the newest."""
    keep_best: int | None = Field(ge=1, le=10**9, default=None)
    """Best checkpoints kept beside the newest. Default null: none is kept for being good."""
    best_metric: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """What ``keep_best`` compares, by its name in the run's metrics. Default null: accuracy on the held-out rows."""
    best_mode: Literal["max", "min"] = "max"
    """Whether the larger or the smaller ``best_metric`` is better. Default max."""
    resume_mode: Literal["auto", "disable", "resume_path"] = "disable"
    """Where a new run begins: at the newest checkpoint of its ``experiment_name``, if there is one (auto), at version 0
    (disable), or at the checkpoint ``resume_from_path`` (resume_path). Default disable, where verl has auto: a run that
    was interrupted goes on by itself, and one that is submitted again is another run."""
    resume_from_path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A ``global_step_N`` folder, or a run's folder of which the newest is taken, under the configured roots or the
    controller's checkpoints. Default null."""
    logger: Loggers = ("console",)
    """Where metrics go besides the run's own history and its metrics.jsonl. Default console: the controller's log."""
    trace: bool = True
    """Whether each step leaves a trace of its completions: lengths, actors and times, which a simulator can replay.
    Default true: it takes some 40 bytes for a completion, and of the oldest steps it is dropped."""
    val_success_reward: float = 1.0
    """Least reward at which an evaluated completion counts as solved for pass@k. Default 1: what exact rewards pay."""
