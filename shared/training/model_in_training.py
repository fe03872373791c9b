"""A model in training: weights and optimizer, together with the references that they stand for.

What is kept between calls is a cache. A call names the weights and the optimizer state it starts from; if the cache
holds others, or was touched by an update that did not end in a reply, both are read again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from torch.optim import AdamW
from transformers import PreTrainedModel

from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.modeling.threads import use_threads
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from shared.training.optimizer_config import OptimizerConfig


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, its optimizer, and what they hold."""

    model: PreTrainedModel
    optimizer: AdamW
    digest: str
    state_digest: str | None


@dataclass(frozen=True, slots=True)
class _Weights:
    """A model that no optimizer belongs to yet."""

    model: PreTrainedModel
    digest: str


class ModelInTraining:
    """Holds the last version that was published or read, ready for its next use."""

    def __init__(self, build: Callable[[str], PreTrainedModel], *, name: str) -> None:
        """`build` makes the architecture in a model folder, still without weights; `name` begins its blobs' names."""
        self._build = build
        self._name = name
        self._held: Trained | _Weights | None = None

    async def frozen(self, policy: PolicyRef, path: str, context: CallContext, *, threads: int) -> PreTrainedModel:
        """The version's model, to be read only. Raises ``MissingBlob`` and the model's own errors."""
        held = self._held
        if held is None or held.digest != policy.digest:
            self._held = None
            held = self._held = _Weights(await self._load(policy, path, context, threads), policy.digest)
        return held.model

    async def take(
        self,
        policy: PolicyRef,
        path: str,
        state: BlobRef | None,
        config: OptimizerConfig,
        context: CallContext,
        *,
        threads: int,
    ) -> Trained:
        """The version to update. It leaves the cache: only ``publish`` puts it back, after the update."""
        held, self._held = self._held, None
        state_digest = state.sha256 if state is not None else None
        if held is not None and held.digest != policy.digest:
            held = None
        if isinstance(held, Trained) and held.state_digest == state_digest:
            return held
        model = held.model if held is not None else await self._load(policy, path, context, threads)
        with context.watch.measure("load"):
            moments = await context.blobs.get(state) if state is not None else None

            def prepare() -> Trained:
                optimizer = build_optimizer(model, config)
                if moments is not None:
                    load_optimizer_state(optimizer, model, moments)
                return Trained(model, optimizer, policy.digest, state_digest)

            return await context.compute(prepare)

    def put_back(self, trained: Trained) -> None:
        """Keep what was taken for the next update; it must be as it was."""
        self._held = trained

    async def publish(
        self, trained: Trained, version: int, model: ModelRef, run: str, step: int, context: CallContext
    ) -> tuple[PolicyRef, BlobRef]:
        """Store the updated weights and optimizer state under the new version, and keep them for the next update."""
        weights, moments = await context.compute(_serialise, trained)
        with context.watch.measure("store"):
            weights_ref, state_ref = await asyncio.gather(
                context.blobs.put(run, step, self._name, weights),
                context.blobs.put(run, step, f"{self._name}-state", moments),
            )
        policy = PolicyRef(version=version, model=model, weights=weights_ref)
        self._held = Trained(trained.model, trained.optimizer, policy.digest, state_ref.sha256)
        return policy, state_ref

    async def _load(self, policy: PolicyRef, path: str, context: CallContext, threads: int) -> PreTrainedModel:
        with context.watch.measure("load"):
            weights = await context.blobs.get(policy.weights)

            def load() -> PreTrainedModel:
                use_threads(threads)
                model = self._build(path)
                load_blob(model, weights)
                return model

            return await context.compute(load)


def _serialise(trained: Trained) -> tuple[bytes, bytes]:
    return state_dict_to_blob(trained.model), optimizer_state_to_blob(trained.optimizer, trained.model)
