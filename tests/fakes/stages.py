"""Stage functions for the simulated platform. They follow the real stage protocol; only their computing is made up.

Tokens, rewards and weights are hashes of what they depend on, so two runs agree exactly if they did the same work, and
the weights of a version carry the whole history of the run.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from controller.platforms.base import PlatformReply
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import ReplicaView, StageFunction
from shared.contracts.call import CallKey, StageCall
from shared.contracts.errors import InvalidInput, StageError, StoreUnavailable, Unauthenticated
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import StageHandler
from shared.service.protocol import StageProtocol
from shared.service.replica import Replica
from shared.service.stop_flag import StopFlag
from shared.store.base import Store
from shared.store.blobs import BlobStore
from tests.fakes.critic import FakeCritic
from tests.fakes.gates import gated_blobs, gated_store
from tests.fakes.learner import FakeLearner
from tests.fakes.reference import FakeReference
from tests.fakes.reward import FakeReward
from tests.fakes.rollout import FakeRollout

TOKEN = "the-token-of-the-functions"
NO_THREADS = ThreadPoolExecutor(max_workers=1)
"""Part of every process; nothing here computes on it, so it never starts a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A call as it reached a stage."""

    key: CallKey
    attempt: int
    fence: int
    policy: PolicyRef | None
    threads: int
    inputs: Any
    instance: str
    at: float


class FakeStages:
    """The stages over one store, and a record of what they were asked and did."""

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        *,
        s_per_token: float = 0.1,
        reward_s: float = 0.5,
        reference_s: float = 1.0,
        critic_s: float = 1.5,
        learner_s: float = 2.0,
    ) -> None:
        self.calls: list[SeenCall] = []
        self.rollout = FakeRollout(s_per_token)
        self.reward = FakeReward(reward_s)
        self.reference = FakeReference(reference_s)
        self.critic = FakeCritic(critic_s)
        self.learner = FakeLearner(learner_s)
        self._arrived = asyncio.Condition()
        self._store = store
        self._blobs = blobs

    def functions(self) -> dict[Stage, StageFunction]:
        """One function per stage, for the platform."""
        return {handler.stage: self._function(handler) for handler in self._handlers()}

    def _handlers(self) -> tuple[StageHandler[Any, Any], ...]:
        return (self.rollout, self.reward, self.reference, self.critic, self.learner)

    def seen(self, stage: Stage, purpose: Purpose = Purpose.TRAIN) -> list[SeenCall]:
        """Calls of one stage, in the order of their arrival."""
        return [call for call in self.calls if call.key.stage is stage and call.key.purpose is purpose]

    async def first(self, stage: Stage, purpose: Purpose = Purpose.TRAIN) -> SeenCall:
        """The stage's first call; waits for it."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self.seen(stage, purpose))
        return self.seen(stage, purpose)[0]

    def _function(self, handler: StageHandler[Any, Any]) -> StageFunction:
        async def answer(path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
            try:
                if headers.get("authorization") != f"Bearer {TOKEN}":
                    raise Unauthenticated("send the shared token")
                if path != handler.stage.route:
                    raise InvalidInput(f"{path} is not the route of {handler.stage}")
                reply = await self._serve(handler, body, replica)
                return PlatformReply(status=200, headers={}, body=reply)
            except StageError as error:
                return problem(error)

        return answer

    async def _serve(self, handler: StageHandler[Any, Any], body: bytes, replica: ReplicaView) -> bytes:
        def alive(operation: str, done: bool) -> None:
            if not replica.is_alive:
                raise StoreUnavailable(f"{replica.instance} is dead")

        call = StageCall[handler.inputs].model_validate_json(body)  # type: ignore[name-defined]
        seen = SeenCall(
            key=call.key,
            attempt=call.attempt,
            fence=call.fence,
            policy=call.policy,
            threads=call.threads,
            inputs=call.inputs,
            instance=replica.instance,
            at=virtual_now(),
        )
        self.calls.append(seen)
        async with self._arrived:
            self._arrived.notify_all()
        process = Replica(
            instance=replica.instance,
            revision=replica.revision,
            started_at=replica.started_at,
            ready_at=replica.ready_at,
            store=gated_store(self._store, alive),
            blobs=gated_blobs(self._blobs, alive),
            executor=NO_THREADS,
        )
        return await StageProtocol(handler, process).serve(call, StopFlag())


def problem(error: StageError) -> PlatformReply:
    """A stage's answer for a failed call."""
    return PlatformReply(status=error.status, headers={}, body=error.problem().model_dump_json().encode())
