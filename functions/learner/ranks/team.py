"""Rank 0's side of an update by several ranks: keeps the others at hand, and starts them anew when one was lost."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from functions.learner.call_config import advantages_inputs
from functions.learner.errors import RankLost
from functions.learner.ranks.crew import POLL_S, Crew, CrewBroken
from functions.learner.ranks.member import Member
from functions.learner.ranks.order import Order
from functions.learner.ranks.sharded_model import ModelWithOptimizer, num_updates_of
from functions.learner.rows import TrainRow
from functions.learner.update import UpdateResult
from shared.codec.lora_adapter import encode_adapter
from shared.contracts.call import StageCall
from shared.contracts.errors import StageError
from shared.contracts.learner import LearnerInputs
from shared.contracts.policy import PolicyRef
from shared.service.beside import beside
from shared.service.handler import CallContext
from shared.training.lora import adapter_of
from shared.training.model_in_training import Trained, weights_key
from shared.training.progress import UpdateProgress
from shared.training.time_budget import Budget

log = logging.getLogger(__name__)

T = TypeVar("T")

STUCK_S = 30.0
"""How long an exchange may hang after one of its ranks has died."""
STUCK_STATUS = 70


class RankTeam:
    """Makes updates with ``size`` ranks, of which this process is rank 0.

    A rank that is lost, and any other failure, ends all of them; the next update starts new ones.
    """

    device = torch.device("cpu")
    """A whole model may be too large for the GPU of one rank, which has its part of it there."""

    def __init__(
        self, size: int, *, instance: str, environment: Mapping[str, str], deterministic: bool = False
    ) -> None:
        self._size = size
        self._instance = instance
        self._environment = environment
        self._deterministic = deterministic
        self._crew: Crew | None = None
        self._member: Member | None = None
        self._held_weights: str | None = None
        """``weights_key`` of what lies on the ranks."""
        self._held_state: str | None = None
        """Key of the optimizer state that lies there."""

    async def start(self) -> None:
        """Have the other ranks begin to start, unless they are there."""
        if self._crew is not None and not self._crew.is_whole():
            log.warning("a rank has ended between two calls: starting them anew")
            self._crew.kill()
            await asyncio.to_thread(self._crew.leave, broken=True)
            self._forget()
        if self._crew is None:
            # By the thread of the event loop, which lives as long as the process: ranks end with the one who made them.
            self._crew = Crew(
                self._size,
                instance=self._instance,
                environment=self._environment,
                deterministic=self._deterministic,
            )

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
        """Train the model in place. Raises what ``update_policy`` raises, and ``RankLost``."""
        source = ModelWithOptimizer(trained.model, trained.optimizer)
        loads_weights = self._held_weights != trained.weights_key
        order = Order(
            path=path,
            adapter=b"" if trained.base is None else encode_adapter(adapter_of(trained.model)),
            call=call,
            rows=rows,
            progress=progress,
            loads_weights=loads_weights,
            loads_state=loads_weights or self._held_state != _state_key(trained.state_digest),
            num_updates=num_updates_of(source),
        )
        return await self._together(order, lambda member: member.update(order, source, budget), context)

    async def logprobs(
        self,
        model: PreTrainedModel,
        path: str,
        rows: list[TrainRow],
        call: StageCall[LearnerInputs],
        policy: PolicyRef,
        context: CallContext,
    ) -> Tensor:
        """The policy's own, of all rows in sorted order. [B, T] Raises ``InvalidRows`` and ``RankLost``."""
        held_weights, held_state = self._held_weights, self._held_state
        key = weights_key(policy, advantages_inputs(call).state)
        order = Order(
            path=path,
            adapter=b"" if policy.adapter is None else encode_adapter(adapter_of(model)),
            call=call,
            rows=rows,
            loads_weights=held_weights != key,
            loads_state=False,
        )
        logprobs = await self._together(order, lambda member: member.logprobs(order, model), context)
        self._held_weights, self._held_state = key, held_state if held_weights == key else None
        return logprobs

    async def _together(self, order: Order, work: Callable[[Member], T], context: CallContext) -> T:
        """What rank 0 makes of an order, while the others follow it."""
        await self.start()
        crew = self._crew
        assert crew is not None
        self._held_weights = self._held_state = None

        def compute() -> T:
            ranks = crew.join()
            if self._member is None:
                self._member = Member(ranks)
            crew.order(order.to_message())
            made = work(self._member)
            crew.expect_done()
            return made

        computing = asyncio.ensure_future(context.compute(compute))
        try:
            async with beside(_watch(crew, computing)):
                return await computing
        except BaseException as error:
            # All ranks refuse the same input, so none is lost by that; they end all the same, in a known state.
            unforeseen = isinstance(error, Exception) and not isinstance(error, StageError)
            lost = await asyncio.to_thread(crew.why_lost) if unforeseen else None
            self._forget()
            crew.kill()
            # Behind whatever still runs there: the group can be left only when nobody is in it.
            context.executor.submit(crew.leave, broken=True)
            if lost is not None or isinstance(error, CrewBroken):
                raise RankLost(
                    f"a rank of the learner was lost and the update with it, nothing was changed: {lost or error}; "
                    "the next attempt starts new ranks"
                ) from error
            raise

    def published(self, key: str, state_digest: str | None) -> None:
        """The model, as the latest update left it, is now known by this ``weights_key`` and digest."""
        self._held_weights, self._held_state = key, _state_key(state_digest)

    async def close(self) -> None:
        """End the other ranks."""
        if self._crew is not None:
            await asyncio.to_thread(self._crew.leave, broken=False)
            self._forget()

    def _forget(self) -> None:
        self._crew = self._member = self._held_weights = self._held_state = None


def _state_key(state_digest: str | None) -> str:
    """Names an optimizer state, also that of an optimizer that was not used yet."""
    return state_digest or "fresh"


async def _watch(crew: Crew, computing: "asyncio.Future[Any]") -> None:
    """See to it that the loss of a rank ends the computation."""
    while crew.is_whole() and not computing.done():
        await asyncio.wait({computing}, timeout=POLL_S)
    if computing.done():
        return
    crew.note_lost()
    crew.kill()
    if crew.ranks is not None:
        crew.ranks.abort()
    await asyncio.wait({computing}, timeout=STUCK_S)
    if not computing.done():
        log.critical("an exchange hangs though a rank of it has died: ending this process, another one can start")
        os._exit(STUCK_STATUS)
