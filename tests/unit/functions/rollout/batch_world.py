"""A batch to roll out, on a store in each of its adapters, and workers that come and go before it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from functions.rollout.engine import Engine
from functions.rollout.leased_work import MAX_DELIVERIES
from functions.rollout.worker import RolloutWorker
from shared.codec.completions import Partial, decode_completion, encode_partial
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId, Stay
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutInputs, RolloutOutputs, Sampling, WorkItem
from shared.contracts.rollout_mail import MailKind, RolloutMail
from shared.contracts.stage import Purpose, Stage
from shared.modeling.randomness import address_seed
from shared.service.handler import CallContext, Outcome
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.base import Store
from shared.store.memory_blobs import MemoryBlobs
from tests.unit.functions.rollout.fake_engine import token_at

BATCH = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=3)
FAR = 4_000_000_000.0
POLICY = PolicyRef(
    version=3,
    model=ModelRef(path="/models/tiny"),
    weights=BlobRef(id="run-1/000003/policy-0123", num_bytes=4, sha256="ab" * 32),
)
RUN_SEED = 11
SHORT_S = 0.001
"""A lease that has ended after ``let_leases_expire``."""


@dataclass
class BatchWorld:
    """One batch of ``num_rows`` prompts with ``num_samples`` completions each."""

    store: Store
    let_leases_expire: Callable[[], Awaitable[None]]
    num_rows: int = 4
    num_samples: int = 3
    max_num_sequences: int = 100
    max_tokens: int = 50
    num_workers: int = 0
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=1))

    @property
    def rows(self) -> list[str]:
        return [f"row-{index}" for index in range(self.num_rows)]

    @property
    def ids(self) -> list[SampleId]:
        return [SampleId(row, sample) for row in self.rows for sample in range(self.num_samples)]

    def items(self) -> list[WorkItem]:
        return [WorkItem(row_uid=row, samples=tuple(range(self.num_samples))) for row in self.rows]

    def prompts(self) -> dict[str, Prompt]:
        return {row: Prompt(row_uid=row, token_ids=(5, 6, 7 + index), text=row) for index, row in enumerate(self.rows)}

    async def put(self, assigned: Sequence[Sequence[WorkItem]] = (), *, fence: int = 0) -> None:
        """Queue the items: as assigned, or all of them for everybody."""
        taken = [item for items in assigned for item in items]
        offered = [item for item in self.items() if item not in taken]
        await self.store.work.put_items(BATCH, fence=fence, assigned=assigned, offered=offered)

    def context(self, *, deadline_at: float = FAR, stop: StopFlag | None = None) -> CallContext:
        self.num_workers += 1
        return CallContext(
            store=self.store,
            blobs=MemoryBlobs(),
            owner=f"rollout-{self.num_workers}/attempt",
            instance=f"rollout-{self.num_workers}",
            deadline_at=deadline_at,
            stop=stop or StopFlag(),
            watch=Stopwatch(),
            executor=self.threads,
        )

    def call(
        self, *, shard: int = 0, segment: int = 0, fence: int = 0, operation: str = "main", **inputs: Any
    ) -> StageCall[RolloutInputs]:
        place = {"shard": shard, "segment": segment, "operation": operation}
        return StageCall[RolloutInputs](
            key=CallKey(**BATCH.model_dump(), stage=Stage.ROLLOUT, **place),
            fence=fence,
            policy=POLICY,
            deadline_at=FAR,
            inputs=RolloutInputs(
                **{
                    "prompts": BlobRef(id="run-1/000003/prompts-0123", num_bytes=4, sha256="cd" * 32),
                    "num_samples": self.num_samples,
                    "sampling": Sampling(temperature=1.0, max_tokens=self.max_tokens, eos_token_ids=(1,)),
                    "run_seed": RUN_SEED,
                    "max_num_sequences": self.max_num_sequences,
                    **inputs,
                }
            ),
        )

    def worker(self, engine: Engine, context: CallContext | None = None, **call: Any) -> RolloutWorker:
        return RolloutWorker(self.call(**call), POLICY, self.prompts(), engine, context or self.context())

    async def run(self, engine: Engine, context: CallContext | None = None, **call: Any) -> Outcome[RolloutOutputs]:
        """One worker call. Whatever comes of it, the engine is clean afterwards."""
        try:
            return await self.worker(engine, context, **call).run()
        finally:
            assert engine.num_running == 0

    async def tell(self, kind: MailKind, *, shard: int | None = None, **mail: Any) -> None:
        """Post a message to one worker, or to all."""
        message = RolloutMail(**{"kind": kind, "fence": 0, **mail})
        await self.store.work.post(BATCH, shard=shard, message=message.model_dump_json())

    async def die_with(self, num_items: int, *, committed: Sequence[SampleId] = ()) -> None:
        """A worker leases items, commits some samples, and is gone without a word. Its leases have ended then."""
        await self.store.work.lease(
            BATCH,
            shard=0,
            owner=f"dead-{self.num_workers}",
            fence=0,
            ttl_s=SHORT_S,
            max_items=num_items,
            max_deliveries=MAX_DELIVERIES,
        )
        self.num_workers += 1
        await self.store.work.commit_samples(BATCH, fence=0, samples=dict.fromkeys(committed, b"committed before"))
        await self.let_leases_expire()

    async def completions(self) -> dict[SampleId, Completion]:
        """What is stored."""
        stored = await self.store.work.samples(BATCH, self.ids)
        return {id: decode_completion(data) for id, data in stored.items()}

    async def num_left(self, *, num_held: int = 0) -> int:
        """Items that a further worker could take now; it takes them. No more than ``num_held`` are in others' hands."""
        lease = await self.store.work.lease(
            BATCH, shard=9, owner="counter", fence=10**6, ttl_s=60.0, max_items=1000, max_deliveries=100
        )
        assert lease.num_elsewhere == num_held
        return len(lease.items)


def expected_tokens(id: SampleId, length: int = 4) -> list[int]:
    """What ``FakeEngine`` samples for this completion, whoever works on it."""
    seed = address_seed(RUN_SEED, BATCH.purpose, BATCH.step, BATCH.round, id.row_uid, id.sample)
    return [token_at(seed, position, length) for position in range(length)]


def saved_part(token_ids: Sequence[int], logprobs: Sequence[float], **facts: Any) -> bytes:
    """What an earlier worker has left of a completion of one turn, drawn from the full distribution."""
    return encode_partial(
        Partial(
            token_ids=np.asarray(token_ids, np.int32),
            rollout_logprobs=np.asarray(logprobs, np.float32),
            processed_logprobs=np.asarray(logprobs, np.float32),
            loss_mask=np.ones(len(token_ids), np.bool_),
            **facts,
        )
    )


def stay(instance: str, *, num_tokens: int = 1) -> Stay:
    """A time at a replica."""
    return Stay(shard=0, instance=instance, started_at=1.0, first_token_at=1.5, ended_at=2.0, num_tokens=num_tokens)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    for _ in range(5000):
        if await condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came to that")
