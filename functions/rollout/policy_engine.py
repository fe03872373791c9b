"""The engine with the weights that a call names. What it keeps between calls is a cache of the last policy."""

import asyncio
from collections.abc import Callable

from functions.rollout.engine import Engine
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.policy import PolicyRef
from shared.modeling.threads import use_threads
from shared.service.ending import end_task
from shared.service.handler import CallContext

EngineFactory = Callable[[str], Engine]
"""Makes an engine for the architecture in a model folder, still without weights."""


class PolicyEngine:
    """Keeps one engine and loads weights into it lazily, so that every call is served by the digest that it names."""

    def __init__(self, make_engine: EngineFactory = TorchEngine.for_model) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._model = ""
        self._digest = ""
        """What the engine holds; empty while that is not certain."""

    async def ready(self, policy: PolicyRef, model: str, context: CallContext, *, threads: int) -> Engine:
        """The engine, serving this policy, whose architecture is in the folder ``model``.

        Raises ``MissingBlob`` and the errors of ``shared.modeling``; then the engine serves nothing.
        """
        if self._engine is not None and self._engine.num_running:
            # Left by a call that could not clean up.
            self.forget()
        if self._engine is not None and (self._model, self._digest) == (model, policy.digest):
            return self._engine
        with context.watch.measure("load"):
            # Beside each other: the bytes are read and checked while the compute thread makes the engine.
            reading = asyncio.create_task(context.blobs.view(policy.weights))
            try:
                engine = await context.compute(self._engine_for, model, threads)
                weights = await reading
            finally:
                await end_task(reading)
            # Before the load begins: wherever it ends, a half-loaded engine answers for no digest.
            self._digest = ""
            await context.compute(engine.load, weights)
            self._digest = policy.digest
        return engine

    def forget(self) -> None:
        """Drop the engine, in whatever state it is."""
        self._engine, self._model, self._digest = None, "", ""

    def _engine_for(self, model: str, threads: int) -> Engine:
        """The engine of this model: the one that is there, or a new one that holds no weights yet."""
        use_threads(threads)
        if self._engine is None or self._model != model:
            # The old one goes first: there may be no room for two.
            self.forget()
            self._engine, self._model = self._make_engine(model), model
        return self._engine
