"""Checkpoints on disk: a Hugging Face folder and the learner's state, under ``global_step_{N}``.

A checkpoint is written beside its place and moved there when it is complete; then the pointer file names it. A folder
of that name with a manifest is complete, and whatever moment a crash picks, the pointer names one that can be loaded.
"""

import asyncio
import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from controller.runs.errors import RunFailed
from controller.runs.manifest import Checkpointed, Manifest
from shared.store.blobs import BlobStore

MANIFEST_FILE = "MANIFEST.json"
MODEL_FOLDER = "huggingface"
WEIGHTS_FILE = "model.safetensors"
STATE_FILE = "learner_state.safetensors"
POINTER_FILE = "latest_checkpointed_iteration.txt"
COPIED = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
"""Files of the model's folder that make the weights loadable; the weights themselves are the policy's."""
NOT_COPIED = frozenset({"model.safetensors.index.json", MANIFEST_FILE})


class CheckpointFailed(RunFailed):
    """The checkpoint folder cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One complete checkpoint."""

    step: int
    folder: str
    num_bytes: int
    created_at: float


async def write_checkpoint(
    head: Manifest, blobs: BlobStore, *, root: Path, model_folder: Path, fence: int
) -> Checkpointed:
    """Write the head's policy and learner state below ``root``, as the run's owner with this fence.

    Raises ``CheckpointFailed`` where the folder cannot be written; what was there before is untouched then.
    """
    weights = await blobs.get(head.policy.weights)
    state = await blobs.get(head.state) if head.state is not None else None
    folder = root / f"global_step_{head.step}"
    try:
        await asyncio.to_thread(_write, folder, head, weights, state, model_folder, fence)
    except OSError as error:
        raise CheckpointFailed(
            f"cannot write the checkpoint {folder}: {error.strerror or error}. Free some space or set "
            "trainer.default_local_dir to a folder that can be written, then resume the run"
        ) from error
    return Checkpointed(step=head.step, folder=str(folder), policy=head.policy, state=head.state)


def _write(folder: Path, head: Manifest, weights: bytes, state: bytes | None, model_folder: Path, fence: int) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder.parent, fence)
    manifest = head.model_dump_json(indent=2).encode()
    # The same head again, after a crash between the move and the head's own next step: it lies there complete.
    if not _holds(folder / MANIFEST_FILE, manifest):
        beside = folder.with_name(f".{folder.name}.{fence}")
        try:
            _write_files(beside, weights, state, model_folder)
            _write_durably(beside / MANIFEST_FILE, manifest)
            _move(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    pointer = folder.with_name(f".{POINTER_FILE}.{fence}")
    _write_durably(pointer, f"{head.step}\n".encode())
    pointer.rename(folder.with_name(POINTER_FILE))


def _write_files(beside: Path, weights: bytes, state: bytes | None, model_folder: Path) -> None:
    model = beside / MODEL_FOLDER
    model.mkdir(parents=True)
    for pattern in COPIED:
        for file in model_folder.glob(pattern):
            if file.is_file() and file.name not in NOT_COPIED:
                _write_durably(model / file.name, file.read_bytes())
    _write_durably(model / WEIGHTS_FILE, weights)
    if state is not None:
        _write_durably(beside / STATE_FILE, state)


def _move(complete: Path, folder: Path) -> None:
    """Put the folder in its place; another checkpoint that lies there makes way in one piece."""
    replaced = complete.with_name(f"{complete.name}.replaced")
    if folder.exists():
        folder.rename(replaced)
    complete.rename(folder)
    shutil.rmtree(replaced, ignore_errors=True)


def _remove_leftovers(root: Path, fence: int) -> None:
    """Delete what owners before this one, or this one's failed attempt, left half written."""
    for leftover in root.glob(".global_step_*.*"):
        owner = leftover.name.split(".")[2]
        if owner.isdigit() and int(owner) <= fence:
            shutil.rmtree(leftover, ignore_errors=True)


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def prune(checkpoints: tuple[Checkpointed, ...], keep: int | None) -> tuple[Checkpointed, ...]:
    """Delete all but the newest ``keep`` checkpoints from disk; returns those that stay."""
    if keep is None:
        return checkpoints
    for old in checkpoints[:-keep]:
        folder = Path(old.folder)
        # Its manifest first: without one, what a crash leaves of the folder is no checkpoint any more.
        with contextlib.suppress(OSError):
            (folder / MANIFEST_FILE).unlink()
        shutil.rmtree(folder, ignore_errors=True)
    return checkpoints[-keep:]


def describe(checkpoints: tuple[Checkpointed, ...]) -> list[CheckpointInfo]:
    """What a user is told about the checkpoints that are on disk."""
    infos = []
    for checkpoint in checkpoints:
        folder = Path(checkpoint.folder)
        manifest = folder / MANIFEST_FILE
        # One that is being deleted meanwhile is not there.
        with contextlib.suppress(FileNotFoundError):
            infos.append(
                CheckpointInfo(
                    step=checkpoint.step,
                    folder=checkpoint.folder,
                    num_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
                    created_at=manifest.stat().st_mtime,
                )
            )
    return infos


def is_writable(root: Path) -> str | None:
    """Why checkpoints cannot be written below ``root``; ``None`` if they can. Leaves nothing behind."""
    try:
        place = next(folder for folder in (root, *root.parents) if folder.exists())
        probe = place / f".probe.{os.urandom(4).hex()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return None
