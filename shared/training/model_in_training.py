"""A model in training: weights, or an adapter to them, and optimizer, with the references that they stand for.

What is kept between calls is a cache. A call names the weights and the optimizer state it starts from; if the cache
holds others, or was touched by an update that did not end in a reply, both are read again.

Here weights are float32, in whatever dtype they are published. Where that is less, version k is trained on from the
float32 weights in its state, and never from what others see of it; version 0 has no other weights than those.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch.optim import AdamW
from transformers import PreTrainedModel

from shared.codec.lora_adapter import encode_adapter
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.training_pass import Precision
from shared.modeling.device import TORCH_DTYPES
from shared.modeling.threads import use_threads
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.lora import adapter_of, attach_adapter
from shared.training.optimizer import build_optimizer, load_optimizer_state, load_weights, optimizer_state_to_blob
from shared.training.optimizer_config import OptimizerConfig


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, its optimizer, and what they hold."""

    model: PreTrainedModel
    optimizer: AdamW
    weights_key: str
    state_digest: str | None
    base: BlobRef | None = None
    """The frozen weights where the model has an adapter, which alone is trained."""
    dtype: Precision = "float32"
    """In which weights are published."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """A model that no optimizer belongs to yet."""

    model: PreTrainedModel
    weights_key: str
    base: BlobRef | None


def weights_key(policy: PolicyRef, state: BlobRef | None) -> str:
    """Names the float32 weights of a version in training.

    Two versions whose weights are equal once rounded differ here: a small learning rate changes no published weight at
    first.
    """
    return policy.digest if state is None or not policy.is_rounded else f"{policy.digest}+{state.sha256}"


class ModelInTraining:
    """Holds the last version that was published or read, ready for its next use."""

    def __init__(self, build: Callable[[str], PreTrainedModel], *, name: str) -> None:
        """`build` makes the architecture in a model folder, still without weights; `name` begins its blobs' names."""
        self._build = build
        self._name = name
        self._held: Trained | _Weights | None = None

    async def frozen(
        self, policy: PolicyRef, path: str, context: CallContext, *, threads: int, state: BlobRef | None = None
    ) -> PreTrainedModel:
        """The version's model, to be read only: as it is published or, with its ``state``, as it is trained.

        Raises ``MissingBlob`` and the model's own errors.
        """
        held = self._held
        if held is None or held.weights_key != weights_key(policy, state):
            self._held = None
            stored = None if state is None or not policy.is_rounded else await _read(state, context)
            held = self._held = await self._load(policy, path, state, stored, context, threads)
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
        if held is not None and held.weights_key != weights_key(policy, state):
            held = None
        if isinstance(held, Trained) and held.state_digest == state_digest:
            return held
        stored = None if state is None else await _read(state, context)
        read = held if held is not None else await self._load(policy, path, state, stored, context, threads)
        model = read.model
        with context.watch.measure("load"):

            def prepare() -> Trained:
                optimizer = build_optimizer(model, config)
                if stored is not None:
                    load_optimizer_state(optimizer, model, stored, with_weights=policy.is_rounded)
                return Trained(model, optimizer, read.weights_key, state_digest, read.base, policy.dtype)

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
        policy = PolicyRef(
            version=version,
            model=model,
            weights=trained_ref if trained.base is None else trained.base,
            dtype=trained.dtype,
            adapter=None if trained.base is None else trained_ref,
        )
        self._held = replace(trained, weights_key=weights_key(policy, state_ref), state_digest=state_ref.sha256)
        return policy, state_ref

    async def _load(
        self,
        policy: PolicyRef,
        path: str,
        state: BlobRef | None,
        stored: memoryview | None,
        context: CallContext,
        threads: int,
    ) -> _Weights:
        """The version's weights; ``stored`` are the bytes of its state."""
        with context.watch.measure("load"):
            weights = await context.blobs.view(policy.weights)
            adapter = None if policy.adapter is None else await context.blobs.get(policy.adapter)

            def load() -> PreTrainedModel:
                use_threads(threads)
                model = self._build(path)
                load_blob(model, weights, dtype=TORCH_DTYPES[policy.dtype])
                if adapter is not None:
                    attach_adapter(model, adapter)
                if policy.is_rounded and stored is not None:
                    load_weights(model, stored)
                return model

            base = None if adapter is None else policy.weights
            return _Weights(await context.compute(load), weights_key(policy, state), base)


async def _read(state: BlobRef, context: CallContext) -> memoryview:
    with context.watch.measure("load"):
        return await context.blobs.view(state)


def _serialise(trained: Trained) -> tuple[bytes, bytes]:
    model = trained.model
    if trained.base is not None:
        return encode_adapter(adapter_of(model)), optimizer_state_to_blob(trained.optimizer, model)
    is_rounded = trained.dtype != "float32"
    weights = state_dict_to_blob(model, TORCH_DTYPES[trained.dtype] if is_rounded else None)
    return weights, optimizer_state_to_blob(trained.optimizer, model, with_weights=is_rounded)
