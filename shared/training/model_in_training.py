"""A model in training: weights, or an adapter to them, and optimizer, with the references that they stand for.

What is kept between calls is a cache. A call names the weights and the optimizer state it starts from; if the cache
holds others, or was touched by an update that did not end in a reply, both are read again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch.optim import AdamW
from transformers import PreTrainedModel

from shared.codec.lora_adapter import encode_adapter
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.modeling.threads import use_threads
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.lora import adapter_of, attach_adapter
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob
from shared.training.optimizer_config import OptimizerConfig


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, its optimizer, and what they hold."""

    model: PreTrainedModel
    optimizer: AdamW
    digest: str
    state_digest: str | None
    base: BlobRef | None = None
    """The frozen weights where the model has an adapter, which alone is trained."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """A model that no optimizer belongs to yet."""

    model: PreTrainedModel
    digest: str
    base: BlobRef | None


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
            held = self._held = await self._load(policy, path, context, threads)
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
        read = held if held is not None else await self._load(policy, path, context, threads)
        model = read.model
        with context.watch.measure("load"):
            moments = await context.blobs.get(state) if state is not None else None

            def prepare() -> Trained:
                optimizer = build_optimizer(model, config)
                if moments is not None:
                    load_optimizer_state(optimizer, model, moments)
                return Trained(model, optimizer, policy.digest, state_digest, read.base)

            return await context.compute(prepare)

    def put_back(self, trained: Trained) -> None:
        """Keep what was taken for the next update; it must be as it was."""
        self._held = trained

    async def publish(
        self, trained: Trained, version: int, model: ModelRef, run: str, step: int, context: CallContext
    ) -> tuple[PolicyRef, BlobRef]:
        """Store what was trained and the optimizer state under the new version, and keep them for the next update."""
        weights, moments = await context.compute(_serialise, trained)
        kind = self._name if trained.base is None else f"{self._name}-adapter"
        with context.watch.measure("store"):
            trained_ref, state_ref = await asyncio.gather(
                context.blobs.put(run, step, kind, weights),
                context.blobs.put(run, step, f"{self._name}-state", moments),
            )
        if trained.base is None:
            policy = PolicyRef(version=version, model=model, weights=trained_ref)
        else:
            policy = PolicyRef(version=version, model=model, weights=trained.base, adapter=trained_ref)
        self._held = replace(trained, digest=policy.digest, state_digest=state_ref.sha256)
        return policy, state_ref

    async def _load(self, policy: PolicyRef, path: str, context: CallContext, threads: int) -> _Weights:
        with context.watch.measure("load"):
            weights = await context.blobs.view(policy.weights)
            adapter = None if policy.adapter is None else await context.blobs.get(policy.adapter)

            def load() -> PreTrainedModel:
                use_threads(threads)
                model = self._build(path)
                load_blob(model, weights)
                if adapter is not None:
                    attach_adapter(model, adapter)
                return model

            return _Weights(await context.compute(load), policy.digest, None if adapter is None else policy.weights)


def _serialise(trained: Trained) -> tuple[bytes, bytes]:
    model = trained.model
    weights = state_dict_to_blob(model) if trained.base is None else encode_adapter(adapter_of(model))
    return weights, optimizer_state_to_blob(trained.optimizer, model)
