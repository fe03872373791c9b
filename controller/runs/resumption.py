"""A new run that goes on from a checkpoint folder: which one, whether it fits, and its blobs in this store."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controller.runs.checkpoints import (
    HISTORY_FILE,
    LENGTHS_FILE,
    MANIFEST_FILE,
    MODEL_FOLDER,
    RUN_FILE,
    SavedRun,
    blob_file,
    newest_checkpoint,
)
from controller.runs.config.keys import known_keys
from controller.runs.config.load import resolved
from controller.runs.config.problems import ConfigInvalid, ConfigProblem, shown
from controller.runs.config.run_config import RunConfig
from controller.runs.data.roots import resolve
from controller.runs.fingerprint import fingerprint, flat
from controller.runs.length_history import HistoryDamaged, parse_file
from controller.runs.manifest import Manifest, named_blobs, with_blobs
from controller.runs.prepared import Prepared
from controller.runs.scrubbing import scrubbed
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.store.blobs import BlobStore

FIELD = "trainer.resume_from_path"
FREE_SECTIONS = ("platform.", "rollout.val_kwargs.", "schedule.")
FREE_KEYS = frozenset(
    {
        # how fast, not what
        "actor.ppo_max_token_len_per_gpu",
        "critic.ppo_max_token_len_per_gpu",
        "model.enable_gradient_checkpointing",
        "reference.log_prob_max_token_len_per_gpu",
        "reward.num_attempts",
        "reward.timeout_s",
        "rollout.max_num_seqs",
        "rollout.num_actors",
        # what is measured, not what is trained
        "data.val_batch_size",
        "data.val_files",
        "trainer.test_freq",
        "trainer.val_before_train",
        "trainer.val_success_reward",
        # what is written, and where
        "trainer.best_metric",
        "trainer.best_mode",
        "trainer.default_local_dir",
        "trainer.experiment_name",
        "trainer.keep_best",
        "trainer.logger",
        "trainer.max_ckpt_to_keep",
        "trainer.project_name",
        "trainer.resume_from_path",
        "trainer.resume_mode",
        "trainer.save_freq",
        "trainer.trace",
        # when it ends: with the schedule of the learning rate, below
        "trainer.total_epochs",
        "trainer.total_training_steps",
        # what the digests tell
        "critic.model.path",
        "data.answer_key",
        "data.filter_overlong_prompts",
        "data.max_prompt_length",
        "data.prompt_key",
        "data.train_files",
        "model.path",
        "reference.model.path",
        "reward.custom_reward_function.path",
    }
)
"""Keys that may differ from the checkpoint's: they change neither a token nor a weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A complete checkpoint on disk."""

    folder: Path
    head: Manifest
    run: SavedRun


def saved_run(run: str, prepared: Prepared) -> SavedRun:
    """What a checkpoint says of its run. Hashes every row: call it off the event loop."""
    return SavedRun(
        run=run,
        config=scrubbed(resolved(prepared.config)),
        digests=fingerprint(prepared),
        total_steps=prepared.total_steps,
    )


def find_checkpoint(config: RunConfig, roots: Sequence[Path], checkpoints: Path) -> Path | None:
    """The folder that the run is to go on from; ``None`` for version 0.

    ``checkpoints`` is where the run's own would lie. Raises ``ConfigInvalid``.
    """
    trainer = config.trainer
    if trainer.resume_mode == "auto":
        return _newest_of_experiment(checkpoints / trainer.project_name, trainer.experiment_name)
    if trainer.resume_mode == "disable" or trainer.resume_from_path is None:
        return None
    place = resolve(trainer.resume_from_path, (*roots, checkpoints), field=FIELD)
    found = place if (place / MANIFEST_FILE).is_file() else newest_checkpoint(place)
    if found is None:
        raise _unusable(f"{place} is no complete checkpoint: it has no {MANIFEST_FILE}", "name a global_step_N folder")
    return found


def read_checkpoint(folder: Path) -> SavedCheckpoint:
    """The checkpoint's records. Raises ``ConfigInvalid`` for a folder that has none or that this version cannot read.

    Its blobs are checked when they are imported.
    """
    try:
        head = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
        run = SavedRun.model_validate_json((folder / RUN_FILE).read_bytes())
    except OSError as error:
        raise _unusable(f"{folder} cannot be read: {error.strerror}", "name a complete checkpoint") from error
    except ValidationError as error:
        raise _unusable(
            f"the records of {folder} are damaged, or another version of rlhfless wrote them",
            f"use the version that wrote it, or start from its weights with model.path={folder / MODEL_FOLDER}",
        ) from error
    return SavedCheckpoint(folder=folder, head=head, run=run)


def check_fits(saved: SavedCheckpoint, prepared: Prepared) -> None:
    """See that the run would go on as the checkpoint's own would have. Raises ``ConfigInvalid`` with every reason why
    not. Hashes every row: call it off the event loop."""
    step, total = saved.head.step, prepared.total_steps
    problems = differences(saved.run, saved_run("", prepared), saved.folder)
    if step >= total:
        problems.append(
            ConfigProblem(
                field="trainer.total_training_steps",
                reason=f"the checkpoint {saved.folder} is at step {step} and the run ends at step {total}: it would do "
                "nothing",
                suggestion=f"use more than {step} steps, or an earlier checkpoint",
            )
        )
    if problems:
        raise ConfigInvalid(problems)


def differences(before: SavedRun, now: SavedRun, folder: Path) -> list[ConfigProblem]:
    """Why steps of the two would not be the same: one problem per key or digest. Pure."""
    fresh = f"or start a new run from its weights with model.path={folder / MODEL_FOLDER}"
    old, new = flat(before.config), flat(now.config)
    defaults = {name: key.default for name, key in known_keys().items()}
    problems = [
        ConfigProblem(
            field=name,
            reason=f"the checkpoint was made with {shown(old.get(name, defaults[name]))}, not {shown(value)}",
            suggestion=f"give it the checkpoint's value, {fresh}",
        )
        for name, value in new.items()
        if not _is_free(name) and _placeless(name, value) != _placeless(name, old.get(name, defaults[name]))
    ]
    falling = [value for name, value in new.items() if name.endswith(".lr_scheduler_type") and value != "constant"]
    if falling and before.total_steps != now.total_steps:
        problems.append(
            ConfigProblem(
                field="trainer.total_training_steps",
                reason=f"the {falling[0]} learning rate of the checkpoint was to end after {before.total_steps} steps, "
                f"not {now.total_steps}: its steps would have been others",
                suggestion=f"use {before.total_steps}, {fresh}",
            )
        )
    fields = {"model": "model.path", "tokenizer": "model.path"}
    problems += [
        ConfigProblem(
            field=fields.get(name, name),
            reason=f"{name.removesuffix('_files')}: its content is not what the checkpoint was made with",
            suggestion=f"give the same content, {fresh}",
        )
        for name in sorted(before.digests.keys() | now.digests.keys())
        if before.digests.get(name) != now.digests.get(name)
    ]
    return problems


async def import_checkpoint(saved: SavedCheckpoint, run: str, prepared: Prepared, blobs: BlobStore) -> Manifest:
    """Store the checkpoint's blobs for the run; returns its first head. Raises ``ConfigInvalid`` for a damaged file."""
    head, refs = saved.head, {}
    for name, ref in named_blobs(head).items():
        data = await asyncio.to_thread(read_verified, saved.folder / blob_file(head, name), ref)
        kind = ref.id.rpartition("/")[2].rpartition("-")[0]
        refs[name] = await blobs.put(run, head.step, kind, data)
    history = await asyncio.to_thread(_read, saved.folder / HISTORY_FILE)

    def here(policy: PolicyRef | None, own_path: str | None = None) -> PolicyRef | None:
        """The policy with its model as this run names it: ``own_path`` where it is not the policy's."""
        model = prepared.model if own_path is None else ModelRef(path=own_path)
        return None if policy is None else policy.model_copy(update={"model": model})

    moved = with_blobs(head, refs)
    return moved.model_copy(
        update={
            "policy": here(moved.policy),
            "critic": here(moved.critic, prepared.config.critic.model.path),
            "reference": here(moved.reference, prepared.config.reference.model.path),
            "previous_policy": None,
            "first_step": head.step,
            "checkpoints": (),
            "earlier_history": await blobs.put(run, head.step, "history", history),
        }
    )


def read_lengths(folder: Path) -> dict[str, str]:
    """The checkpoint's length history by row, as the store has it; nothing where an earlier version wrote none.

    Raises ``ConfigInvalid`` for a damaged file.
    """
    path = folder / LENGTHS_FILE
    if not path.exists():
        return {}
    try:
        return parse_file(_read(path))
    except HistoryDamaged as error:
        raise _unusable(f"{path} is damaged: {error}", "use another checkpoint, or delete the file") from error


def _newest_of_experiment(project: Path, experiment: str | None) -> Path | None:
    """The checkpoint that was written last among those of the experiment's runs."""
    found: list[tuple[float, Path]] = []
    for manifest in project.glob(f"*/global_step_*/{MANIFEST_FILE}"):
        try:
            saved, written_at = read_checkpoint(manifest.parent), manifest.stat().st_mtime
        except (ConfigInvalid, OSError):
            # Of another experiment, perhaps, and unreadable or deleted meanwhile: nobody asked for this one.
            continue
        if saved.run.config.get("trainer", {}).get("experiment_name") == experiment:
            found.append((written_at, manifest.parent))
    return max(found)[1] if found else None


def read_verified(path: Path, ref: BlobRef) -> bytes:
    """A blob's file. Raises ``ConfigInvalid`` if it is gone or is not what its reference promises."""
    data = _read(path)
    if len(data) != ref.num_bytes or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise _unusable(f"{path} is damaged: it does not match its digest", "use another checkpoint")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(f"{path} cannot be read: {error.strerror}", "use another checkpoint") from error


def _is_free(name: str) -> bool:
    return name in FREE_KEYS or name.startswith(FREE_SECTIONS)


def _placeless(name: str, value: Any) -> Any:
    """The value without the folders of reward functions: a digest tells what is in the file."""
    if name != "reward.parts" or value is None:
        return value
    functions = [re.sub(r".*(?=\.py:)", "", part.get("function") or "") for part in value]
    return [{**part, "function": function} for part, function in zip(value, functions, strict=True)]


def _unusable(reason: str, suggestion: str) -> ConfigInvalid:
    return ConfigInvalid([ConfigProblem(field=FIELD, reason=reason, suggestion=suggestion)])
