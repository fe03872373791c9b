"""The engine with the weights that a call names. What it keeps between calls is a cache of the last policy."""

from collections.abc import Callable

from functions.rollout.engine import Engine
from functions.rollout.torch_engine import TorchEngine
from shared.contracts.policy import PolicyRef
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext

EngineFactory = Callable[[str], Engine]
"""Makes an engine for the architecture in a model folder, still without weights."""


class PolicyEngine:
    """Keeps one engine and loads weights into it lazily, so that every call is served by the digest that it names."""

    def __init__(self, make_engine: EngineFactory = TorchEngine.for_model) -> None:
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._model_path = ""
        self._digest = ""

    async def ready(self, policy: PolicyRef, context: CallContext, *, threads: int) -> Engine:
        """The engine, serving this policy. Raises ``MissingBlob`` and the model's own errors."""
        with context.watch.measure("load"):
            if self._digest != policy.digest or self._model_path != policy.model.path or self._engine is None:
                weights = await context.blobs.get(policy.weights)
                self._engine = await context.compute(self._load, policy, weights, threads)
                self._digest = policy.digest
        return self._engine

    def _load(self, policy: PolicyRef, weights: bytes, threads: int) -> Engine:
        use_threads(threads)
        # Until the load has succeeded the engine serves nothing: a damaged one must not answer for either digest.
        self._digest = ""
        if self._engine is None or self._model_path != policy.model.path:
            self._engine = self._make_engine(policy.model.path)
            self._model_path = policy.model.path
        self._engine.load(weights)
        return self._engine
