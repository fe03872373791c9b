"""Where a call's passes over the model are computed."""

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.call_config import advantages_inputs, config_of
from functions.learner.policy_logprobs import logprobs_of_all
from functions.learner.rows import TrainRow
from functions.learner.update import UpdateResult, update_policy
from shared.contracts.call import StageCall
from shared.contracts.learner import LearnerInputs
from shared.contracts.policy import PolicyRef
from shared.modeling.threads import use_threads
from shared.service.handler import CallContext
from shared.training.model_in_training import Trained
from shared.training.progress import UpdateProgress
from shared.training.time_budget import Budget


class Updater(Protocol):
    """Where updates are computed."""

    device: torch.device
    """Where the model in a piece lies, that versions are read into and published from."""

    async def start(self) -> None:
        """Begin to get ready, while the call's inputs are read."""
        ...

    async def update(
        self,
        trained: Trained,
        path: str,
        rows: list[TrainRow],
        call: StageCall[LearnerInputs],
        budget: Budget,
        progress: UpdateProgress | None,
        context: CallContext,
    ) -> UpdateResult:
        """Train the model in place; ``path`` is its folder. Raises what ``update_policy`` raises."""
        ...

    async def logprobs(
        self,
        model: PreTrainedModel,
        path: str,
        rows: list[TrainRow],
        call: StageCall[LearnerInputs],
        policy: PolicyRef,
        context: CallContext,
    ) -> Tensor:
        """The policy's own, of all rows of a call for advantages, in sorted order. [B, T] Raises ``InvalidRows``."""
        ...

    def published(self, key: str, state_digest: str | None) -> None:
        """The model, as the latest update left it, is now known by this ``weights_key`` and digest."""
        ...

    async def close(self) -> None:
        """Nothing is updated any more."""
        ...


class InThisProcess:
    """On the compute thread, where the model lies."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    async def start(self) -> None:
        """It is ready."""

    async def update(
        self,
        trained: Trained,
        path: str,
        rows: list[TrainRow],
        call: StageCall[LearnerInputs],
        budget: Budget,
        progress: UpdateProgress | None,
        context: CallContext,
    ) -> UpdateResult:
        """Train the model in place. Raises what ``update_policy`` raises."""

        def compute() -> UpdateResult:
            use_threads(call.threads)
            return update_policy(
                trained.model,
                trained.optimizer,
                rows,
                config_of(call),
                call.key.step,
                budget=budget,
                progress=progress,
            )

        return await context.compute(compute)

    async def logprobs(
        self,
        model: PreTrainedModel,
        path: str,
        rows: list[TrainRow],
        call: StageCall[LearnerInputs],
        policy: PolicyRef,
        context: CallContext,
    ) -> Tensor:
        """The policy's own, of all rows of a call for advantages, in sorted order. [B, T] Raises ``InvalidRows``."""
        inputs = advantages_inputs(call)

        def compute() -> Tensor:
            use_threads(call.threads)
            return logprobs_of_all(
                model,
                rows,
                temperature=inputs.temperature,
                max_token_len=inputs.algorithm.max_token_len,
                compute=inputs.algorithm.compute,
            )

        return await context.compute(compute)

    def published(self, key: str, state_digest: str | None) -> None:
        """It holds nothing."""

    async def close(self) -> None:
        """It holds nothing."""
