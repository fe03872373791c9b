"""learner → rollout: which weights a call must be served with."""

import hashlib

from pydantic import Field

from shared.contracts.ids import BlobName
from shared.contracts.training_pass import PublishedDtype
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
    dtype: PublishedDtype = "float32"
    """Of the numbers in the weights: whoever samples with them computes in it. An adapter is float32 all the same."""
    adapter: BlobRef | None = None
    """A LoRA adapter; ``None`` where the weights themselves are trained."""

    @property
    def is_rounded(self) -> bool:
        """Whether training goes on from more exact weights than are published: those in the learner's state."""
        return self.dtype != "float32" and self.adapter is None

    @property
    def digest(self) -> str:
        """Identifies what a replica computes with: the weights blob, or weights and adapter together."""
        if self.adapter is None:
            return self.weights.sha256
        return hashlib.sha256(f"{self.weights.sha256}+{self.adapter.sha256}".encode()).hexdigest()
