"""The engine with the weights that a call names. What it keeps between calls is a cache of the last policy."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import torch

from functions.rollout.engine import Engine
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.training_pass import Precision
from shared.modeling.device import TORCH_DTYPES, compute_device
from shared.modeling.threads import use_threads
from shared.service.ending import end_task
from shared.service.handler import CallContext

EngineFactory = Callable[[str, torch.dtype], Engine]
"""Makes an engine for the architecture in a model folder, still without weights, that computes in a dtype."""


def torch_engine(model: str, dtype: torch.dtype) -> Engine:
    """The torch engine, where the replica computes."""
    return TorchEngine.for_model(model, dtype, compute_device())


_Kind = tuple[str, Precision]
"""Model folder and dtype."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Digests of what an engine holds."""

    weights: str
    adapter: str | None

    @classmethod
    def of(cls, policy: PolicyRef) -> "_Held":
        """What it holds to serve the policy."""
        return cls(policy.weights.sha256, None if policy.adapter is None else policy.adapter.sha256)


class PolicyEngine:
    """Keeps one engine and loads weights into it lazily, so that every call is served by the digest that it names.

    Versions that differ in their adapter only share the weights: these are loaded once.
    """

    def __init__(self, make_engine: EngineFactory = torch_engine) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._kind: _Kind = ("", "float32")
        self._holds: _Held | None = None
        """None while it is not certain."""

    async def ready(self, policy: PolicyRef, model: str, context: CallContext, *, threads: int) -> Engine:
        """The engine, serving this policy, whose architecture is in the folder ``model``: it computes in the dtype of
        the policy's weights.

        Raises ``MissingBlob`` and the errors of ``shared.modeling``; then the engine serves nothing.
        """
        if self._engine is not None and self._engine.num_running:
            # Left by a call that could not clean up.
            self.forget()
        kind, asked = (model, policy.dtype), _Held.of(policy)
        if self._engine is not None and (self._kind, self._holds) == (kind, asked):
            return self._engine
        with context.watch.measure("load"):
            held = self._holds if self._kind == kind else None
            weights = policy.weights if held is None or held.weights != asked.weights else None
            adapter = policy.adapter
            # Beside each other: the bytes are read and checked while the compute thread makes the engine.
            reading = asyncio.create_task(_read(weights, adapter, context))
            try:
                engine = await context.compute(self._engine_for, kind, threads)
                weights_bytes, adapter_bytes = await reading
            finally:
                await end_task(reading)

            def load() -> None:
                if weights_bytes is not None:
                    engine.load(weights_bytes)
                if adapter is not None or weights_bytes is None:
                    engine.adapt(adapter_bytes)

            # Before the load begins: wherever it ends, a half-loaded engine answers for no digest.
            self._holds = None
            await context.compute(load)
            self._holds = asked
        return engine

    def forget(self) -> None:
        """Drop the engine, in whatever state it is."""
        self._engine, self._kind, self._holds = None, ("", "float32"), None

    def _engine_for(self, kind: _Kind, threads: int) -> Engine:
        """The engine of this kind: the one that is there, or a new one that holds no weights yet."""
        use_threads(threads)
        if self._engine is None or self._kind != kind:
            # The old one goes first: there may be no room for two.
            self.forget()
            model, dtype = kind
            self._engine, self._kind = self._make_engine(model, TORCH_DTYPES[dtype]), kind
        return self._engine


async def _read(
    weights: BlobRef | None, adapter: BlobRef | None, context: CallContext
) -> tuple[memoryview | None, memoryview | None]:
    """The bytes of what is to be loaded. Raises ``MissingBlob``."""
    return (
        None if weights is None else await context.blobs.view(weights),
        None if adapter is None else await context.blobs.view(adapter),
    )
