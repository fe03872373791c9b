"""Ids of uploaded datasets: a hash of their content, so the same upload twice is the same dataset."""

import hashlib
import re
from pathlib import Path, PurePath

from controller.runs.data.errors import UploadInvalid
from controller.runs.data.reader import FORMATS

SCHEME = "dataset://"
ID_PATTERN = "[0-9a-f]{40}"
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._ -]{0,127}"
"""Names for people, and of the file on disk: its end says the format."""
NAME = "name"
"""The request's field that errors of a name are under."""
_CHUNK_BYTES = 2**20
_SYNONYMS = {".ndjson": ".jsonl"}


class ContentHash:
    """Computes the id of a dataset while its bytes pass by."""

    def __init__(self, name: str) -> None:
        """Raises ``UploadInvalid`` for a name that no dataset can have."""
        # The same bytes in two formats are two datasets.
        self._sha256 = hashlib.sha256(f"{_format_of(name)}\n".encode())

    def update(self, chunk: bytes) -> None:
        """Take in the next bytes."""
        self._sha256.update(chunk)

    @property
    def id(self) -> str:
        """The id of what was taken in so far."""
        return self._sha256.hexdigest()[:40]


def id_of_file(file: Path) -> str:
    """The id that the file's content has once it is uploaded. Raises ``UploadInvalid`` or ``OSError``."""
    content = ContentHash(name_for(file))
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            content.update(chunk)
    return content.id


def name_for(file: Path) -> str:
    """A dataset's name that is as close to the file's as names allow."""
    stem = re.sub(r"[^A-Za-z0-9._ -]", "_", file.stem).lstrip("._ -")[:100]
    return (stem or "data") + file.suffix


def uri_of(id: str) -> str:
    """How a run's config names the dataset."""
    return SCHEME + id


def is_dataset_uri(path: str) -> bool:
    """Whether an entry of ``data.train_files`` or ``data.val_files`` is an uploaded dataset."""
    return path.startswith(SCHEME)


def _format_of(name: str) -> str:
    if not re.fullmatch(NAME_PATTERN, name):
        raise UploadInvalid(
            field=NAME,
            reason="a dataset's name has letters, digits, spaces, dots, dashes and underscores, 128 at most",
            suggestion="name it like its file: train.jsonl",
        )
    end = PurePath(name).suffix.lower()
    if end not in FORMATS:
        raise UploadInvalid(
            field=NAME,
            reason=f"the name's end says the format, and {end or 'no end'!r} is none",
            suggestion=f"let it end in one of {', '.join(FORMATS)}",
        )
    return _SYNONYMS.get(end, end)
