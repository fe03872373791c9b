"""``rlhfless export``: a checkpoint's model as a folder that ``transformers`` loads, also from a remote controller."""

import asyncio
import contextlib
import os
import shutil
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

from controller.cli.client import ControllerClient
from controller.cli.run_commands import say
from controller.cli.session import ExitCode, fail
from controller.runs.checkpoints import MODEL_FOLDER, WEIGHTS_FILE

WEIGHTS_OF_OTHERS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.json")
"""What a loader might take in place of the exported weights, where the folder had a model before."""


class ArchiveInvalid(Exception):
    """What the controller sent is no model's folder."""


async def export(client: ControllerClient, run: str, target: Path, *, step: int | None, force: bool) -> ExitCode:
    """Fetch the model of a checkpoint, the newest unless ``step`` names one, into ``target``.

    The folder appears when it is complete. One that has something in it is left alone unless ``force``: then files of
    the same names and other weights make way.
    """
    if (occupied := _occupied(target, force)) is not None:
        return fail(occupied, ExitCode.USAGE)
    if step is None:
        checkpoints = await client.checkpoints(run)
        if not checkpoints:
            return fail(f"run {run} has no checkpoint yet", ExitCode.FAILURE)
        step = int(checkpoints[-1]["step"])
    partial = _beside(target)
    try:
        partial.mkdir(parents=True)
        await fetch(client.checkpoint_model(run, step), partial)
        _place(partial, target)
    except OSError as error:
        return fail(f"{target} cannot be written: {error.strerror or error}", ExitCode.FAILURE)
    except ArchiveInvalid as error:
        return fail(f"the controller's answer cannot be used: {error}", ExitCode.FAILURE)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"the model of run {run} after {step} steps is in {target}")
    return ExitCode.OK


def _occupied(target: Path, force: bool) -> str | None:
    """Why the folder cannot be written to."""
    if target.exists() and not target.is_dir():
        return f"{target} is a file: name a folder"
    if target.is_dir() and any(target.iterdir()) and not force:
        return f"{target} is not empty: name another folder, or overwrite with --force"
    return None


def _beside(target: Path) -> Path:
    place = target.absolute()
    return place.with_name(f".{place.name}.partial.{os.getpid()}")


async def fetch(archive: AsyncIterator[bytes], folder: Path) -> None:
    """Unpack a tar archive while it comes; at no time is more than a chunk of it in memory.

    Raises ``ArchiveInvalid``, and whatever ends the archive before its end.
    """
    source, sink = os.pipe()
    unpacking = asyncio.create_task(asyncio.to_thread(_unpack, source, folder))
    try:
        with os.fdopen(sink, "wb") as pipe:
            async for chunk in archive:
                await asyncio.to_thread(pipe.write, chunk)
    except BrokenPipeError:
        # Nobody reads any more: the unpacking tells why.
        await unpacking
        raise
    except BaseException:
        with contextlib.suppress(Exception):
            await unpacking
        raise
    await unpacking


def _unpack(source: int, folder: Path) -> None:
    with os.fdopen(source, "rb") as pipe:
        try:
            with tarfile.open(fileobj=pipe, mode="r|") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    path = PurePosixPath(member.name)
                    if content is None or path.parts[:1] != (MODEL_FOLDER,) or ".." in path.parts:
                        raise ArchiveInvalid(f"{member.name!r} is no file of a model")
                    place = folder / path.relative_to(MODEL_FOLDER)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with place.open("wb") as file:
                        shutil.copyfileobj(content, file)
        except tarfile.TarError as error:
            raise ArchiveInvalid(str(error)) from error
    if not (folder / WEIGHTS_FILE).is_file() or not (folder / "config.json").is_file():
        raise ArchiveInvalid(f"it has no {WEIGHTS_FILE} or no config.json")


def _place(partial: Path, target: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        # An empty folder is replaced in one piece.
        partial.rename(target)
        return
    for pattern in WEIGHTS_OF_OTHERS:
        for stale in target.glob(pattern):
            stale.unlink()
    for file in partial.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(partial)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
