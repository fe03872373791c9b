"""Files that outlive a power cut."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes | bytearray) -> None:
    """Write a file, and its folder where there is none; it is on the disk then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Make what was written to a file outlive a power cut."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Make the folder's names outlive a power cut: those of its files, and that of what was moved into it."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
