"""The metadata of a safetensors file in memory, which the library reads from files only."""

import json

HEADER_LENGTH_BYTES = 8
"""A safetensors file starts with the length of its JSON header, little-endian."""
METADATA = "__metadata__"
NOT_OURS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading a header that is somebody else's JSON may raise."""


def metadata_of(data: bytes | memoryview) -> dict[str, str]:
    """The metadata entries. Raises one of ``NOT_OURS`` where there are none."""
    length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
    header = json.loads(bytes(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length]))
    metadata: dict[str, str] = header[METADATA]
    return metadata
