"""Checkpoints on disk: ``global_step_{N}`` is a whole record of a run after N steps, by itself enough to go on from.

    global_step_6/
      huggingface/                 the policy as ``from_pretrained`` loads it, in its dtype (``rollout.dtype``); an
                                   adapter is merged into its weights
      lora_adapter/                where there is one: the adapter as peft loads it
      learner_state.safetensors    the learner's optimizer state, and its float32 weights where the policy is rounded:
                                   a run that goes on goes on from these
      {field}.safetensors          every other blob that the head names: critic.weights, critic_state, ...
      history.jsonl                what was measured and what it cost, from the first step on
      length_history.jsonl         how long each row's completions were, by epoch
      run.json                     the config without secrets, and digests of the model, the tokenizer and the data
      MANIFEST.json                the head: cursor, seed, KL coefficient, leftover rows, and the digest of each blob
    latest_checkpointed_iteration.txt

A checkpoint is written beside its place and moved there when it is complete; then the pointer file names it. A folder
of that name with a manifest is complete, and whatever moment a crash picks, the pointer names one that can be loaded.
"""

import asyncio
import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from controller.runs.durable_files import sync_folder, write_durably
from controller.runs.errors import ContractBroken, RunFailed
from controller.runs.manifest import Checkpointed, Manifest, named_blobs
from shared.codec.lora_adapter import DamagedAdapter, decode_adapter, merge_adapter, peft_config
from shared.contracts.training_pass import Precision
from shared.contracts.wire import Wire
from shared.store.blobs import BlobStore

MANIFEST_FILE = "MANIFEST.json"
RUN_FILE = "run.json"
HISTORY_FILE = "history.jsonl"
LENGTHS_FILE = "length_history.jsonl"
MODEL_FOLDER = "huggingface"
WEIGHTS_FILE = "model.safetensors"
ADAPTER_FOLDER = "lora_adapter"
STATE_FILE = "learner_state.safetensors"
POINTER_FILE = "latest_checkpointed_iteration.txt"
CONFIG_FILE = "config.json"
COPIED = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
"""Files of the model's folder that make the weights loadable; the weights themselves are the policy's."""
NOT_COPIED = frozenset({"model.safetensors.index.json", MANIFEST_FILE})


class CheckpointFailed(RunFailed):
    """The checkpoint folder cannot be written."""


class SavedRun(Wire):
    """What ran, so that another controller can tell whether it would go on with the same."""

    format: Literal[1] = 1
    run: str
    config: dict[str, Any]
    """Every key with the value that held, without secrets."""
    digests: dict[str, str]
    """Of what the config only names: see ``fingerprint``."""
    total_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """One complete checkpoint."""

    step: int
    folder: str
    num_bytes: int
    created_at: float
    metric: float | None = None
    """``trainer.best_metric`` of its policy; ``None`` where it was not measured."""


def blob_file(head: Manifest, name: str) -> str:
    """Where a blob of ``named_blobs`` lies in the head's checkpoint.

    Weights that an adapter is added to are not the policy, so they do not lie where a loader takes them for it.
    """
    if name == "state":
        return STATE_FILE
    if name == "policy.weights" and head.policy.adapter is None:
        return f"{MODEL_FOLDER}/{WEIGHTS_FILE}"
    if name == "policy.adapter":
        return f"{ADAPTER_FOLDER}/adapter_model.safetensors"
    if name == "reference.weights" and head.reference is not None and head.reference.weights == head.policy.weights:
        # Both have the weights that the adapter is added to: one file.
        return blob_file(head, "policy.weights")
    return f"{name}.safetensors"


async def write_checkpoint(
    head: Manifest,
    blobs: BlobStore,
    *,
    root: Path,
    model_folder: Path,
    saved_run: SavedRun,
    history: bytes,
    lengths: bytes = b"",
    fence: int,
    metric: float | None = None,
) -> Checkpointed:
    """Write all that the head names below ``root``, as the run's owner with this fence.

    One blob is in memory at a time; with an adapter, the weights and what they are merged to. Raises
    ``CheckpointFailed`` where the folder cannot be written, ``MissingBlob``, and ``ContractBroken`` for an adapter that
    does not fit its weights; what was there before is untouched then.
    """
    folder = root / f"global_step_{head.step}"
    manifest = head.model_dump_json(indent=2).encode()
    beside = folder.with_name(f".{folder.name}.{fence}")
    try:
        # The same head again, after a crash between the move and the head's own next step: it lies there complete.
        if not await asyncio.to_thread(_begin, folder, manifest, fence):
            try:
                files = {blob_file(head, name): ref for name, ref in named_blobs(head).items()}
                for place, ref in files.items():
                    await asyncio.to_thread(write_durably, beside / place, await blobs.get(ref))
                if head.policy.adapter is not None:
                    await asyncio.to_thread(_write_merged, beside, head)
                texts = {
                    HISTORY_FILE: history,
                    LENGTHS_FILE: lengths,
                    RUN_FILE: saved_run.model_dump_json(indent=2).encode(),
                }
                await asyncio.to_thread(_write_files, beside, model_folder, head.policy.dtype, texts)
                await asyncio.to_thread(write_durably, beside / MANIFEST_FILE, manifest)
                await asyncio.to_thread(_move, beside, folder)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        await asyncio.to_thread(_point, root, head.step, fence)
    except OSError as error:
        raise CheckpointFailed(
            f"cannot write the checkpoint {folder}: {error.strerror or error}. Free some space or set "
            "trainer.default_local_dir to a folder that can be written, then resume the run"
        ) from error
    return Checkpointed(
        step=head.step,
        folder=str(folder),
        policy=head.policy,
        state=head.state,
        critic=head.critic,
        critic_state=head.critic_state,
        metric=metric,
    )


def _begin(folder: Path, manifest: bytes, fence: int) -> bool:
    """Clear the place beside the folder. True if the folder is there with this manifest: nothing is left to write."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder.parent, fence)
    return _holds(folder / MANIFEST_FILE, manifest)


def _write_merged(beside: Path, head: Manifest) -> None:
    """Write what the weights and the adapter that lie there are together, and what peft reads beside an adapter."""
    place = beside / blob_file(head, "policy.adapter")
    try:
        adapter = decode_adapter(place.read_bytes())
        merged = merge_adapter((beside / blob_file(head, "policy.weights")).read_bytes(), adapter)
    except DamagedAdapter as error:
        raise ContractBroken(
            f"learner made an adapter that does not fit its weights, {error}: swap its image"
        ) from error
    write_durably(beside / MODEL_FOLDER / WEIGHTS_FILE, merged)
    config = peft_config(adapter, head.policy.model.path)
    write_durably(place.with_name("adapter_config.json"), json.dumps(config, indent=2).encode())


def _write_files(beside: Path, model_folder: Path, dtype: Precision, texts: dict[str, bytes]) -> None:
    for pattern in COPIED:
        for file in model_folder.glob(pattern):
            if file.is_file() and file.name not in NOT_COPIED:
                data = file.read_bytes()
                written = with_dtype(data, dtype) if file.name == CONFIG_FILE else data
                write_durably(beside / MODEL_FOLDER / file.name, written)
    for name, text in texts.items():
        write_durably(beside / name, text)


def with_dtype(config: bytes, dtype: Precision) -> bytes:
    """A model's config.json that says nothing else of its dtype than its weights: loaders go by what it says."""
    read: dict[str, Any] = json.loads(config)
    wrong = {name: dtype for name in ("dtype", "torch_dtype") if read.get(name, dtype) != dtype}
    return json.dumps({**read, **wrong}, indent=2).encode() if wrong else config


def _move(complete: Path, folder: Path) -> None:
    """Put the folder in its place; another checkpoint that lies there makes way in one piece."""
    for place in (*(path for path in complete.iterdir() if path.is_dir()), complete):
        sync_folder(place)
    replaced = complete.with_name(f"{complete.name}.replaced")
    if folder.exists():
        folder.rename(replaced)
    complete.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _point(root: Path, step: int, fence: int) -> None:
    pointer = root / f".{POINTER_FILE}.{fence}"
    write_durably(pointer, f"{step}\n".encode())
    pointer.rename(root / POINTER_FILE)
    sync_folder(root)


def _remove_leftovers(root: Path, fence: int) -> None:
    """Delete what owners before this one, or this one's failed attempt, left half written."""
    for leftover in root.glob(".global_step_*.*"):
        owner = leftover.name.split(".")[2]
        if owner.isdigit() and int(owner) <= fence:
            shutil.rmtree(leftover, ignore_errors=True)


def _holds(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def newest_checkpoint(root: Path) -> Path | None:
    """The complete checkpoint that the pointer names, or, where somebody removed that one, the one of the last step."""
    complete: dict[int, Path] = {}
    for manifest in root.glob(f"global_step_*/{MANIFEST_FILE}"):
        step = manifest.parent.name.removeprefix("global_step_")
        if step.isdecimal():
            complete[int(step)] = manifest.parent
    with contextlib.suppress(OSError, ValueError, KeyError):
        return complete[int((root / POINTER_FILE).read_text())]
    return complete[max(complete)] if complete else None


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
                    metric=checkpoint.metric,
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
