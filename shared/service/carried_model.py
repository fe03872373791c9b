"""The model that an image carries, as its function announces it: a run refuses functions whose tokenizers differ."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedModel:
    """A model folder of the image."""

    path: str
    tokenizer_hash: str
    """SHA-256 of tokenizer.json: equal hashes give equal token ids (``Tokenizer.fingerprint``)."""


def read_carried_model(folder: Path) -> CarriedModel:
    """The model in the folder. Raises ``ValueError`` naming the variable that says where it is."""
    try:
        content = (folder / "tokenizer.json").read_bytes()
    except OSError as error:
        why = error.strerror
        raise ValueError(f"RLHFLESS_MODEL is {str(folder)!r}, whose tokenizer.json cannot be read: {why}") from None
    return CarriedModel(path=str(folder), tokenizer_hash=hashlib.sha256(content).hexdigest())
