"""The name by which everyone knows a policy's weights."""

import hashlib


def weights_digest(blob: bytes | bytearray | memoryview) -> str:
    """SHA-256 of a weights blob (`weights.state_dict_to_blob`), 64 hex digits.

    The blob's bytes are deterministic, so equal weights have equal digests.
    """
    return hashlib.sha256(blob).hexdigest()
