"""The forward pass with the weights that a call names. What it keeps between calls is a cache of the last policy."""

import asyncio

from shared.contracts.policy import PolicyRef
from shared.contracts.training_pass import Precision
from shared.inference.decoder import Decoder, decoder_for
from shared.modeling.device import TORCH_DTYPES, compute_device
from shared.modeling.loading import new_model
from shared.modeling.merged_weights import MergedWeights
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext

_Kind = tuple[str, Precision]
"""Model folder and dtype."""


class PolicyDecoder:
    """Keeps one model and loads weights into it lazily, so that every call is served by the digest that it names."""

    def __init__(self) -> None:
        self._kind: _Kind = ("", "float32")
        self._decoder: Decoder | None = None
        self._weights: MergedWeights | None = None
        self._base: str | None = None
        """Digest of the weights in it, without an adapter; ``None`` while it is not certain."""
        self._digest: str | None = None
        """Digest of the policy that it computes with; ``None`` while it is not certain."""

    async def ready(self, policy: PolicyRef, model: str, context: CallContext, *, threads: int) -> Decoder:
        """The forward pass of this policy, whose architecture is in the folder ``model``, in the dtype of its weights.

        Raises ``MissingBlob`` and the errors of ``shared.modeling``; then it serves no policy.
        """
        kind = (model, policy.dtype)
        if self._decoder is not None and (self._kind, self._digest) == (kind, policy.digest):
            return self._decoder
        with context.watch.measure("load"):
            is_base_there = self._kind == kind and self._base == policy.weights.sha256
            weights, adapter = await asyncio.gather(
                _nothing() if is_base_there else context.blobs.view(policy.weights),
                _nothing() if policy.adapter is None else context.blobs.view(policy.adapter),
            )
            self._digest = None
            decoder = await context.compute(self._load, kind, weights, adapter, threads)
            self._base, self._digest = policy.weights.sha256, policy.digest
        return decoder

    def _load(self, kind: _Kind, weights: memoryview | None, adapter: memoryview | None, threads: int) -> Decoder:
        use_threads(threads)
        if self._decoder is None or self._weights is None or self._kind != kind:
            # The old one goes first: there may be no room for two.
            self._decoder, self._weights, self._base = None, None, None
            model, dtype = kind
            built = new_model(model, TORCH_DTYPES[dtype], compute_device()).requires_grad_(False)
            # The decoder fuses matrices, so the weights are loaded into what it has made of the model.
            self._kind, self._decoder = kind, decoder_for(built, has_weights=False)
            self._weights = MergedWeights(built)
        if weights is not None:
            self._base = None
            self._weights.load(weights)
        if adapter is not None or weights is None:
            self._weights.merge(adapter)
        return self._decoder


async def _nothing() -> None:
    """What is read where there is nothing to read."""
