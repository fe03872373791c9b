"""The engine with the weights that a call names. What it keeps between calls is a cache of the last policy."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from functions.rollout.engine import Engine
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.policy import BlobRef, PolicyRef
from shared.modeling.threads import use_threads
from shared.service.ending import end_task
from shared.service.handler import CallContext

EngineFactory = Callable[[str], Engine]
"""Makes an engine for the architecture in a model folder, still without weights."""


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

    def __init__(self, make_engine: EngineFactory = TorchEngine.for_model) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._model = ""
        self._holds: _Held | None = None
        """None while it is not certain."""

    async def ready(self, policy: PolicyRef, model: str, context: CallContext, *, threads: int) -> Engine:
        """The engine, serving this policy, whose architecture is in the folder ``model``.

        Raises ``MissingBlob`` and the errors of ``shared.modeling``; then the engine serves nothing.
        """
        if self._engine is not None and self._engine.num_running:
            # Left by a call that could not clean up.
            self.forget()
        asked = _Held.of(policy)
        if self._engine is not None and (self._model, self._holds) == (model, asked):
            return self._engine
        with context.watch.measure("load"):
            held = self._holds if self._model == model else None
            weights = policy.weights if held is None or held.weights != asked.weights else None
            adapter = policy.adapter
            # Beside each other: the bytes are read and checked while the compute thread makes the engine.
            reading = asyncio.create_task(_read(weights, adapter, context))
            try:
                engine = await context.compute(self._engine_for, model, threads)
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
        self._engine, self._model, self._holds = None, "", None

    def _engine_for(self, model: str, threads: int) -> Engine:
        """The engine of this model: the one that is there, or a new one that holds no weights yet."""
        use_threads(threads)
        if self._engine is None or self._model != model:
            # The old one goes first: there may be no room for two.
            self.forget()
            self._engine, self._model = self._make_engine(model), model
        return self._engine


async def _read(
    weights: BlobRef | None, adapter: BlobRef | None, context: CallContext
) -> tuple[memoryview | None, memoryview | None]:
    """The bytes of what is to be loaded. Raises ``MissingBlob``."""
    return (
        None if weights is None else await context.blobs.view(weights),
        None if adapter is None else await context.blobs.view(adapter),
    )
