"""A rollout in virtual time. Tokens are hashes of their address and of the weights."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import ClassVar

import numpy as np

from controller.platforms.simulated.clock import virtual_now
from shared.codec.completions import Partial, decode_partial, encode_completion, encode_partial
from shared.contracts.call import StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import PoisonedItem, StoreUnavailable
from shared.contracts.policy import PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, WorkItem
from shared.contracts.stage import Stage
from shared.service.handler import CallContext, Outcome
from tests.fakes.batches import read_prompts

LEASE_TTL_S = 6.0
RENEW_EVERY_S = 2.0
MAX_DELIVERIES = 3

ItemHook = Callable[[str, WorkItem], Awaitable[None]]
"""Awaited when a worker begins an item: its instance and the item. May kill the worker."""


class FakeRollout:
    """Leases items and commits completions, token by token in virtual time."""

    stage: ClassVar[Stage] = Stage.ROLLOUT
    exclusive: ClassVar[bool] = True
    inputs = RolloutInputs
    outputs = RolloutOutputs

    def __init__(self, s_per_token: float) -> None:
        self.s_per_token = s_per_token
        self.on_item: ItemHook | None = None

    async def handle(self, call: StageCall[RolloutInputs], context: CallContext) -> Outcome[RolloutOutputs]:
        """Work until no item is left, or until the deadline."""
        assert call.policy is not None
        prompts = await read_prompts(context.blobs, call.inputs.prompts)
        worker = _Worker(call, call.policy, prompts, context, self.s_per_token, self.on_item)
        async with _every(RENEW_EVERY_S, worker.renew):
            finished = await worker.work()
        return Outcome(
            outputs=RolloutOutputs(
                num_completions=worker.num_completions,
                num_tokens=worker.num_tokens,
                num_resumed=worker.num_resumed,
            ),
            status="done" if finished else "continue",
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    async def close(self) -> None:
        """Nothing is held."""


class _Worker:
    """One rollout call at work."""

    def __init__(
        self,
        call: StageCall[RolloutInputs],
        policy: PolicyRef,
        prompts: Mapping[str, Prompt],
        context: CallContext,
        s_per_token: float,
        on_item: ItemHook | None,
    ) -> None:
        self._call = call
        self._policy = policy
        self._prompts = prompts
        self._context = context
        self._batch = call.key.batch
        self._work = context.store.work
        self._s_per_token = s_per_token
        self._on_item = on_item
        self._held: list[WorkItem] = []
        self.num_completions = self.num_tokens = self.num_resumed = 0

    async def renew(self) -> None:
        """Keep the leases."""
        with contextlib.suppress(StoreUnavailable):
            await self._work.renew_leases(self._batch, owner=self._context.owner, ttl_s=LEASE_TTL_S)

    async def work(self) -> bool:
        """True when there is nothing left, False at the deadline."""
        try:
            while await self._lease():
                while self._held:
                    if not await self._decode(self._held[0]):
                        return False
                    item = self._held.pop(0)
                    await self._work.finish_item(self._batch, owner=self._context.owner, item=item)
            return True
        finally:
            for item in self._held:
                with contextlib.suppress(StoreUnavailable):
                    await self._work.return_item(self._batch, owner=self._context.owner, item=item)

    async def _lease(self) -> bool:
        inputs = self._call.inputs
        lease = await self._work.lease(
            self._batch,
            shard=self._call.key.shard,
            owner=self._context.owner,
            fence=self._call.fence,
            ttl_s=LEASE_TTL_S,
            max_items=max(1, inputs.max_num_sequences // inputs.num_samples),
            max_deliveries=MAX_DELIVERIES,
        )
        if lease.poisoned is not None:
            raise PoisonedItem(f"the worker died {MAX_DELIVERIES} times on row {lease.poisoned.row_uid}")
        self._held = [leased.item for leased in lease.items]
        return bool(self._held)

    async def _decode(self, item: WorkItem) -> bool:
        """Sample the item's missing completions side by side. False if the deadline came first."""
        if self._on_item is not None:
            await self._on_item(self._context.instance, item)
        ids = [SampleId(item.row_uid, sample) for sample in item.samples]
        missing = [id for id in ids if id not in await self._work.committed(self._batch, ids)]
        saved = await self._work.partials(self._batch, missing)
        self.num_resumed += len(saved)
        done = {id: len(decode_partial(data).token_ids) for id, data in saved.items()}
        began_at = virtual_now()
        for id in sorted(missing, key=lambda id: len(self._tokens(id)) - done.get(id, 0)):
            tokens, have = self._tokens(id), done.get(id, 0)
            ends_at = began_at + (len(tokens) - have) * self._s_per_token
            if ends_at > self._context.deadline_at:
                await self._save(missing, done, began_at)
                return False
            await self._compute(ends_at - virtual_now())
            await self._commit(id, tokens, began_at)
        return True

    async def _save(self, ids: Sequence[SampleId], done: Mapping[SampleId, int], began_at: float) -> None:
        """Decode to the deadline and keep what is unfinished."""
        await self._compute(self._context.deadline_at - virtual_now())
        num_new = int((virtual_now() - began_at) / self._s_per_token)
        partials = {}
        for id in ids:
            tokens = self._tokens(id)[: done.get(id, 0) + num_new]
            logprobs = np.full(len(tokens), -0.5, dtype=np.float32)
            partials[id] = encode_partial(
                Partial(
                    token_ids=np.asarray(tokens, dtype=np.int32),
                    rollout_logprobs=logprobs,
                    processed_logprobs=logprobs,
                    loss_mask=np.ones(len(tokens), dtype=np.bool_),
                )
            )
        await self._work.save_partials(self._batch, fence=self._call.fence, partials=partials)

    async def _compute(self, duration_s: float) -> None:
        if duration_s > 0:
            await asyncio.sleep(duration_s)
            self._context.watch.compute_s += duration_s

    async def _commit(self, id: SampleId, tokens: Sequence[int], began_at: float) -> None:
        completion = Completion(
            id=id,
            prompt_num_tokens=len(self._prompts[id.row_uid].token_ids),
            token_ids=np.asarray(tokens, dtype=np.int32),
            rollout_logprobs=np.full(len(tokens), -0.5, dtype=np.float32),
            processed_logprobs=np.full(len(tokens), -0.5, dtype=np.float32),
            loss_mask=np.ones(len(tokens), dtype=np.bool_),
            segments=(0,),
            finish_reason="stop",
            policy_version=self._policy.version,
            weights_digest=self._policy.digest,
            instance=self._context.instance,
            started_at=began_at,
            ended_at=virtual_now(),
        )
        await self._work.commit_samples(
            self._batch, fence=self._call.fence, samples={id: encode_completion(completion)}
        )
        self.num_completions += 1
        self.num_tokens += len(tokens)

    def _tokens(self, id: SampleId) -> tuple[int, ...]:
        """The completion: a function of its address and the weights, never of who samples it."""
        batch, inputs = self._batch, self._call.inputs
        address = f"{inputs.run_seed}/{batch.purpose}/{batch.step}/{batch.round}/{id}/{self._policy.digest}"
        noise = Random(address)
        return tuple(noise.randrange(100) for _ in range(noise.randint(1, inputs.sampling.max_tokens)))


@contextlib.asynccontextmanager
async def _every(period_s: float, act: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(period_s)
            await act()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
