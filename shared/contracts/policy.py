"""learner → rollout: which weights a call must be served with."""

import hashlib

from pydantic import Field

from shared.contracts.ids import BlobName
from shared.contracts.wire import Wire


class BlobRef(Wire):
    """Stored bytes: an opaque id, their size, and the digest that a reader checks."""

    id: BlobName
    num_bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class ModelRef(Wire):
    """The architecture and tokenizer of a policy: a folder under the configured roots, or a hub id."""

    path: str = Field(min_length=1, max_length=1024)


class PolicyRef(Wire):
    """One policy version. The digest identifies the weights; the version only orders them within a run."""

    version: int = Field(ge=0)
    model: ModelRef
    weights: BlobRef
    """All weights; with an adapter those that it is added to, the same in every version of the run."""
    adapter: BlobRef | None = None
    """A LoRA adapter; ``None`` where the weights themselves are trained."""

    @property
    def digest(self) -> str:
        """Identifies what a replica computes with: the weights blob, or weights and adapter together."""
        if self.adapter is None:
            return self.weights.sha256
        return hashlib.sha256(f"{self.weights.sha256}+{self.adapter.sha256}".encode()).hexdigest()
