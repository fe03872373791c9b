"""A run's model and data, read and checked before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.config.schedule import schedule_problems
from controller.runs.config.warnings import warnings_of
from controller.runs.data.context import context_tokens
from controller.runs.data.dataset import Dataset, Split, load_dataset
from controller.runs.data.library import DatasetLibrary
from controller.runs.data.paths import resolve_paths, stored_file
from controller.runs.data.sampler import Sampler
from controller.runs.data.split import hold_out, num_shared
from controller.runs.other_models import other_models
from shared.contracts.errors import InvalidInput
from shared.contracts.policy import ModelRef
from shared.contracts.prompt import Prompt
from shared.modeling.folder import CONFIG_FILES, TOKENIZER_FILES, model_folder
from shared.modeling.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What every step of the run reads."""

    config: RunConfig
    """With absolute paths."""
    model: ModelRef
    model_folder: Path
    """Where the model's config and tokenizer lie on this machine."""
    other_models: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the models that the critic and the reference start from, by the key that names one."""
    eos_token_ids: tuple[int, ...]
    tokenizer: Tokenizer | None = None
    """The model's; ``None`` only in tests that tokenise nothing."""
    train: Dataset
    heldout: tuple[Prompt, ...]
    sampler: Sampler
    total_steps: int
    notes: tuple[str, ...]
    """What the config is warned of and what was recognised in the data, one line each."""

    def train_batch(self, cursor: int, size: int) -> tuple[tuple[Prompt, ...], int]:
        """The next ``size`` training prompts after ``cursor`` rows, and the cursor behind them."""
        return self.train.take(self.sampler.draws(cursor, size)), cursor + size


def prepare(
    config: RunConfig, roots: Sequence[Path], *, allow_hub: bool, library: DatasetLibrary | None = None
) -> Prepared:
    """Resolve the paths, read the tokenizer and the data, check every row. Raises ``ConfigInvalid``.

    ``library`` has the uploaded datasets. Reads files and tokenises: call it off the event loop.
    """
    config = resolve_paths(config, roots, allow_hub=allow_hub, library=library)
    try:
        folder = model_folder(config.model.path, CONFIG_FILES + TOKENIZER_FILES)
        tokenizer = Tokenizer.load(folder)
    except InvalidInput as error:
        raise ConfigInvalid(
            [ConfigProblem(field="model.path", reason=error.message, suggestion="name a Hugging Face model folder")]
        ) from error
    others = other_models(config, tokenizer)
    context = context_tokens(folder)
    # A user's function may read any column; most built-in rules compare with the ground truth.
    needs_truth = config.reward.needs_ground_truth

    def load(split: Split, files: Sequence[str]) -> Dataset:
        return load_dataset(
            [stored_file(file, library, field=f"data.{split}_files") for file in files],
            split,
            config.data,
            tokenizer,
            context_tokens=context,
            needs_ground_truth=needs_truth,
        )

    train = load("train", config.data.train_files)
    heldout = load("val", config.data.val_files) if config.data.val_files else None
    if config.data.val_split is not None:
        train, heldout = hold_out(train, config.data.val_split, config.data_seed)
    total_steps = config.total_steps(len(train.prompts))
    if problems := schedule_problems(config, total_steps):
        raise ConfigInvalid(problems)
    return Prepared(
        config=config,
        model=ModelRef(path=config.model.path),
        model_folder=folder,
        other_models=others,
        eos_token_ids=tokenizer.eos_token_ids,
        tokenizer=tokenizer,
        train=train,
        heldout=heldout.prompts if heldout else (),
        sampler=Sampler(
            num_rows=len(train.prompts),
            batch_size=config.data.train_batch_size,
            seed=config.data_seed,
            shuffle=config.data.shuffle,
        ),
        total_steps=total_steps,
        notes=(*warnings_of(config), train.note, *(() if heldout is None else (_heldout_note(train, heldout),))),
    )


def _heldout_note(train: Dataset, heldout: Dataset) -> str:
    shared = num_shared(train.prompts, heldout.prompts)
    return f"{heldout.note}; {shared} of them have a prompt that is trained on" if shared else heldout.note
