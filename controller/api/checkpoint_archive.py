"""A folder as a tar archive that is made while it is sent: files of any size pass through a small buffer."""

import asyncio
import os
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.runs.errors import CheckpointUnknown, RunConflict

CHUNK_BYTES = 2**20
END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file: its header block, where it lies, and how many bytes of it were promised."""

    header: bytes
    path: Path
    num_bytes: int

    @property
    def padding(self) -> int:
        """Bytes that fill its last block."""
        return -self.num_bytes % tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The files of an archive, in the order in which they are sent."""

    members: tuple[Member, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the whole archive."""
        sizes = (len(member.header) + member.num_bytes + member.padding for member in self.members)
        return sum(sizes) + len(END_OF_ARCHIVE)


def plan_archive(folder: Path) -> Archive:
    """List the folder's files, with names below the folder's own.

    Raises ``CheckpointUnknown`` if the folder is gone, ``RunConflict`` if something in it lies elsewhere.
    """
    if not folder.is_dir():
        raise CheckpointUnknown(f"the checkpoint's folder {folder.name} is no longer on disk")
    return Archive(members=tuple(_member(path, folder) for path in sorted(_files(folder))))


async def stream_archive(archive: Archive) -> AsyncIterator[bytes]:
    """The archive's bytes. Raises ``OSError`` if a file was deleted or cut short meanwhile: the download then breaks
    off, since its length was promised."""
    for member in archive.members:
        yield member.header
        file = await asyncio.to_thread(_open, member.path)
        try:
            missing = member.num_bytes
            while missing:
                chunk = await asyncio.to_thread(os.read, file, min(CHUNK_BYTES, missing))
                if not chunk:
                    raise OSError(f"{member.path.name} was cut short while it was sent")
                missing -= len(chunk)
                yield chunk
        finally:
            os.close(file)
        yield bytes(member.padding)
    yield END_OF_ARCHIVE


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            # A checkpoint is written by the controller as plain files: whatever else is there was put there.
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise RunConflict(f"the checkpoint has {path.relative_to(folder)}, which is no file: remove it first")
        yield from (Path(parent, name) for name in names)


def _member(path: Path, folder: Path) -> Member:
    status = path.stat()
    info = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
    info.size, info.mtime, info.mode = status.st_size, int(status.st_mtime), 0o644
    return Member(header=info.tobuf(tarfile.PAX_FORMAT), path=path, num_bytes=status.st_size)


def _open(path: Path) -> int:
    # Not through a link: the file may have been replaced by one since it was listed.
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
