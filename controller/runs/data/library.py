"""Uploaded datasets on the controller's disk.

One folder each, named by the id: ``dataset.json`` beside ``rows/``, which has the one file. A folder appears complete:
it is made under ``.incoming`` and moved.
"""

import errno
import json
import logging
import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controller.runs.data.dataset_id import ID_PATTERN, SCHEME
from controller.runs.data.errors import DatasetUnknown, PathNotFound
from controller.runs.durable_files import sync_file, sync_folder, write_durably

log = logging.getLogger(__name__)

METADATA_FILE = "dataset.json"
ROWS_FOLDER = "rows"
INCOMING = ".incoming"
STALE_S = 24 * 3600.0
"""Age at which what a killed controller left of an upload is swept; no upload takes this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDataset:
    """What is known of an uploaded dataset."""

    id: str
    name: str
    num_rows: int
    num_bytes: int
    columns: tuple[str, ...]
    """Of its first row."""
    created_at: float


@dataclass(frozen=True, slots=True)
class DatasetLibrary:
    """The datasets in one folder, which may not exist yet."""

    root: Path

    def begin(self) -> Path:
        """A new folder to put an upload into."""
        self._sweep()
        folder = self.root / INCOMING / os.urandom(8).hex()
        (folder / ROWS_FOLDER).mkdir(parents=True)
        return folder

    def discard(self, folder: Path) -> None:
        """Delete what is in a folder of ``begin``, unless it was kept."""
        shutil.rmtree(folder, ignore_errors=True)

    def keep(self, folder: Path, dataset: StoredDataset) -> tuple[StoredDataset, bool]:
        """Make the incoming folder a dataset, durably. If its id is there already that one stays, unless it is damaged;
        True if this one is new."""
        for file in (folder / ROWS_FOLDER).iterdir():
            sync_file(file)
        write_durably(folder / METADATA_FILE, json.dumps(asdict(dataset)).encode())
        for place in (folder / ROWS_FOLDER, folder):
            sync_folder(place)
        there = self.root / dataset.id
        if there.is_dir() and self._read(dataset.id) is None:
            self._remove(there)
        try:
            folder.rename(there)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            return self.get(dataset.id), False
        sync_folder(self.root)
        return dataset, True

    def list(self) -> list[StoredDataset]:
        """All datasets, oldest first."""
        ids = [path.name for path in self.root.iterdir()] if self.root.is_dir() else []
        there = [self._read(id) for id in ids if re.fullmatch(ID_PATTERN, id)]
        return sorted((one for one in there if one is not None), key=lambda one: (one.created_at, one.id))

    def get(self, id: str) -> StoredDataset:
        """One dataset. Raises ``DatasetUnknown``; also for an id that none can have."""
        found = self._read(id) if re.fullmatch(ID_PATTERN, id) else None
        if found is None:
            raise DatasetUnknown(f"there is no dataset {id[:64]!r}: GET /v1/datasets lists those that are stored")
        return found

    def delete(self, id: str) -> None:
        """Forget a dataset. Raises ``DatasetUnknown``."""
        self.get(id)
        try:
            self._remove(self.root / id)
        except FileNotFoundError as error:
            raise DatasetUnknown(f"dataset {id} was deleted meanwhile") from error

    def file(self, uri: str, *, field: str) -> Path:
        """Where the rows of ``dataset://ID`` lie. Raises ``PathNotFound``."""
        id = uri.removeprefix(SCHEME)
        try:
            found = self.get(id)
        except DatasetUnknown as error:
            raise PathNotFound(
                field=field,
                reason=f"there is no uploaded dataset {id[:64]!r}",
                suggestion="upload it with POST /v1/datasets or rlhfless train --upload, or name a file under a root",
            ) from error
        return self.root / id / ROWS_FOLDER / found.name

    def _read(self, id: str) -> StoredDataset | None:
        """``None`` for one that is not there, or that is damaged: what nobody can read is no dataset."""
        file = self.root / id / METADATA_FILE
        try:
            content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return StoredDataset(**content | {"columns": tuple(content["columns"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            log.warning("dataset %s is damaged, upload it again: %s: %s", id, file, error)
            return None

    def _remove(self, folder: Path) -> None:
        # Moved first: a folder that is being deleted is no dataset any more.
        gone = self.root / INCOMING / os.urandom(8).hex()
        gone.parent.mkdir(exist_ok=True)
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _sweep(self) -> None:
        folder = self.root / INCOMING
        for left in list(folder.iterdir()) if folder.is_dir() else ():
            # One that is kept or given up meanwhile is gone.
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > STALE_S:
                    shutil.rmtree(left, ignore_errors=True)
