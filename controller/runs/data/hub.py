"""Files of hub datasets, named ``hf://datasets/ORG/NAME[@REVISION]/PATTERN`` as ``datasets`` and pandas name them."""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote, unquote

from controller.runs.data.errors import PathNotFound

SCHEME = "hf://"
_FILES = re.compile(
    r"hf://datasets/(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[^/@]+))?/(?P<pattern>.+)"
)


def is_hub_file(path: str) -> bool:
    """Whether an entry of ``data.train_files`` or ``data.val_files`` is on a hub."""
    return path.startswith(SCHEME)


def pinned_files(uri: str, *, field: str, allow_hub: bool) -> tuple[str, ...]:
    """One URI for each file that matches, in the order of their names, at the commit that holds now.

    The files are then in the hub's cache (``HF_HUB_OFFLINE=1``: they must be there). A run that goes on another day
    reads the same rows. Raises ``PathNotFound``.
    """
    repository, revision, pattern = _parse(uri, field)
    if not allow_hub:
        raise PathNotFound(
            field=field,
            reason=f"{uri!r} is on a hub, and the controller's settings allow none",
            suggestion="start the controller with RLHFLESS_ALLOW_HUB=1, or name files under a root",
        )
    snapshot = _snapshot(repository, revision, pattern, field)
    names = sorted(file.relative_to(snapshot).as_posix() for file in snapshot.rglob("*") if file.is_file())
    # As the hub matches: a * stands for slashes too.
    matching = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
    if not matching:
        raise PathNotFound(
            field=field,
            reason=f"no file of {repository} matches {pattern!r}",
            suggestion="name one of its JSONL or parquet files, with its folders",
        )
    return tuple(f"hf://datasets/{repository}@{quote(snapshot.name, safe='')}/{name}" for name in matching)


def local_file(path: str, *, field: str) -> Path:
    """Where a file of ``pinned_files``, or one that is no hub file, lies on this machine. Raises ``PathNotFound``."""
    if not is_hub_file(path):
        return Path(path)
    repository, revision, name = _parse(path, field)
    return _snapshot(repository, revision, name, field) / name


def _parse(uri: str, field: str) -> tuple[str, str | None, str]:
    named = _FILES.fullmatch(uri)
    if named is None:
        raise PathNotFound(
            field=field,
            reason=f"{uri!r} does not name files of a hub dataset",
            suggestion="write hf://datasets/ORG/NAME/FILE, for example hf://datasets/openai/gsm8k/main/train-*.parquet",
        )
    revision = named["revision"]
    return named["repository"], None if revision is None else unquote(revision), named["pattern"]


def _snapshot(repository: str, revision: str | None, pattern: str, field: str) -> Path:
    """The folder of the dataset at one commit, with at least the matching files. Its name is the commit."""
    # Only for hub files: importing it takes long.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision, allow_patterns=[pattern]))
    except (OSError, ValueError) as error:
        raise PathNotFound(
            field=field,
            reason=f"the dataset {repository} could not be had from the hub or its cache: {error}",
            suggestion="correct its name, or fetch it where there is a network: hf download --repo-type dataset "
            f"{repository}",
        ) from error
