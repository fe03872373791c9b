"""The policy in training: a model and its optimizer, together with the references that they stand for.

What is kept between calls is a cache. A call names the weights and the optimizer state it starts from; if the cache
holds others, or was touched by an update that did not end in a reply, both are read again.
"""

import asyncio
from dataclasses import dataclass

from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.modeling.loading import load_model, new_model
from shared.modeling.threads import use_threads
from shared.modeling.weights import load_blob, state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.optimizer import build_optimizer, load_optimizer_state, optimizer_state_to_blob


@dataclass(frozen=True, slots=True)
class Trained:
    """A model, its optimizer, and what they hold."""

    model: PreTrainedModel
    optimizer: AdamW
    policy_digest: str
    state_digest: str | None


class TrainedPolicy:
    """Holds the last policy that was published, ready for its next update."""

    def __init__(self) -> None:
        self._held: Trained | None = None

    async def initial_weights(self, path: str, context: CallContext, *, threads: int) -> bytes:
        """The weights blob of the configured model. Raises the model's own errors."""

        def load() -> bytes:
            use_threads(threads)
            return state_dict_to_blob(load_model(path))

        with context.watch.measure("load"):
            return await context.compute(load)

    async def take(
        self,
        policy: PolicyRef,
        path: str,
        state: BlobRef | None,
        config: LearnerConfig,
        context: CallContext,
        *,
        threads: int,
    ) -> Trained:
        """The policy to update. It leaves the cache: only ``keep`` puts it back, after the update was published."""
        held, self._held = self._held, None
        state_digest = state.sha256 if state is not None else None
        if held is not None and (held.policy_digest, held.state_digest) == (policy.digest, state_digest):
            return held
        with context.watch.measure("load"):
            weights = await context.blobs.get(policy.weights)
            moments = await context.blobs.get(state) if state is not None else None

            def load() -> Trained:
                use_threads(threads)
                model = new_model(path)
                load_blob(model, weights)
                optimizer = build_optimizer(model, config)
                if moments is not None:
                    load_optimizer_state(optimizer, model, moments)
                return Trained(model, optimizer, policy.digest, state_digest)

            return await context.compute(load)

    async def publish(
        self, trained: Trained, version: int, model: ModelRef, run: str, step: int, context: CallContext
    ) -> tuple[PolicyRef, BlobRef]:
        """Store the updated weights and optimizer state under the new version, and keep them for the next update."""
        weights, moments = await context.compute(_serialise, trained)
        with context.watch.measure("store"):
            weights_ref, state_ref = await asyncio.gather(
                context.blobs.put(run, step, "policy", weights),
                context.blobs.put(run, step, "learner-state", moments),
            )
        self._held = Trained(trained.model, trained.optimizer, weights_ref.sha256, state_ref.sha256)
        return PolicyRef(version=version, model=model, weights=weights_ref), state_ref


def _serialise(trained: Trained) -> tuple[bytes, bytes]:
    return state_dict_to_blob(trained.model), optimizer_state_to_blob(trained.optimizer, trained.model)
