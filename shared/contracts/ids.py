"""Identifiers as types: a run id cannot be passed where a row uid is meant."""

import re
from typing import Annotated, NewType

from pydantic import StringConstraints

RunId = NewType("RunId", str)
"""One training run; chosen by the controller, safe in keys, paths and URLs."""

RowUid = NewType("RowUid", str)
"""One data row within a run. Two rows with the same text have different uids."""

BlobId = NewType("BlobId", str)
"""An opaque name of stored bytes, always under its run's prefix. Never a URL or a path."""

InstanceId = NewType("InstanceId", str)
"""One running replica of a function."""

ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
Identifier = Annotated[str, StringConstraints(pattern=ID_PATTERN)]

BLOB_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}(/[A-Za-z0-9][A-Za-z0-9._=-]{0,127}){1,7}$"
BlobName = Annotated[str, StringConstraints(pattern=BLOB_PATTERN)]


def is_identifier(text: str) -> bool:
    """Whether the text may name a run: lower case letters, digits and dashes, 63 characters at most."""
    return re.fullmatch(ID_PATTERN, text) is not None
