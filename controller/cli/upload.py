"""Data files of this machine to a controller on another one. What it has already is not sent again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from controller.cli.client import ControllerClient
from controller.cli.local_paths import DATA_KEYS, LocalPath
from controller.cli.session import error_console
from controller.cli.text import printable, size
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.data.dataset_id import id_of_file, name_for, uri_of
from controller.runs.data.errors import UploadInvalid

CHUNK_BYTES = 2**20


def check_sendable(paths: Sequence[LocalPath]) -> list[LocalPath]:
    """The data files among the paths of a config. Raises ``ConfigInvalid`` for what can or must not be sent.

    Code is refused and not passed over: a file of the same name that the controller knows may be another one.
    """
    problems = [problem for path in paths if (problem := _problem(path)) is not None]
    if problems:
        raise ConfigInvalid(problems)
    return [path for path in paths if path.key in DATA_KEYS]


async def send(client: ControllerClient, paths: Sequence[LocalPath], note: Callable[[str], None]) -> dict[Path, str]:
    """Upload the files that the controller does not have; returns how a config names each.

    Raises ``ConfigInvalid`` for a file that cannot be read, ``Refused`` and ``Unreachable``.
    """
    uris: dict[Path, str] = {}
    for path in paths:
        if path.place in uris:
            continue
        try:
            id = await asyncio.to_thread(id_of_file, path.place)
            num_bytes = (await asyncio.to_thread(path.place.stat)).st_size
            is_there = await client.has_dataset(id)
            if not is_there:
                id = await _send_file(client, path.place, num_bytes)
        except UploadInvalid as error:
            [problem] = error.problems
            raise _invalid(path, problem.reason, problem.suggestion) from error
        except OSError as error:
            raise _invalid(path, f"{path.place} cannot be read: {error.strerror}", "make it readable") from error
        uris[path.place] = uri_of(id)
        sent = "is there already" if is_there else f"was sent ({size(num_bytes)})"
        note(f"{path.field}: {path.given} {sent} and is {uris[path.place]}")
    return uris


async def _send_file(client: ControllerClient, file: Path, num_bytes: int) -> str:
    console = error_console()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"sending {printable(file.name)}", total=num_bytes)

        async def chunks() -> AsyncIterator[bytes]:
            source = await asyncio.to_thread(file.open, "rb")
            with source:
                while chunk := await asyncio.to_thread(source.read, CHUNK_BYTES):
                    yield chunk
                    progress.advance(task, len(chunk))

        return str((await client.upload_dataset(name_for(file), chunks(), num_bytes=num_bytes))["id"])


def _problem(path: LocalPath) -> ConfigProblem | None:
    if path.is_code:
        return ConfigProblem(
            field=path.field,
            reason=f"{path.given} is code of this machine, and a controller on another one takes none",
            suggestion="put it into the reward function's image and name it as package.module:function "
            "(reward.custom_reward_function.module), or add --no-upload if the controller has this very file",
        )
    if path.key in DATA_KEYS and not path.place.is_file():
        return ConfigProblem(
            field=path.field,
            reason=f"{path.given} is a folder, and files are sent one by one",
            suggestion="save it as parquet, or add --no-upload if the controller has it",
        )
    return None


def _invalid(path: LocalPath, reason: str, suggestion: str) -> ConfigInvalid:
    return ConfigInvalid([ConfigProblem(field=path.field, reason=reason, suggestion=suggestion)])
