"""The store that the function uses, and in it a run that is there for the checks alone."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from controller.conformance.settings import ConformanceInvalid, ConformanceSettings
from controller.runs.state import RunState
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire
from shared.store.base import RunRecord, Store
from shared.store.blobs import BlobStore
from shared.store.opening import open_blobs, redis_store
from shared.store.redis_connection import RedisConnection

FENCE = 2
"""Of the run's owner: there was one before."""
FAR_S = 300.0
STORE_PATIENCE_S = 10.0
BUDGET_BYTES = 8 * 2**30


@dataclass(slots=True, kw_only=True)
class Workshop:
    """Makes calls whose keys are new."""

    store: Store
    blobs: BlobStore
    run: str
    stage: Stage
    num_batches: int = field(default=0)

    def new_batch(self) -> BatchKey:
        """A batch that nobody has worked on."""
        self.num_batches += 1
        return BatchKey(run=self.run, purpose=Purpose.TRAIN, step=self.num_batches)

    def call(
        self,
        inputs: Wire,
        *,
        policy: PolicyRef | None = None,
        batch: BatchKey | None = None,
        fence: int = FENCE,
        deadline_in_s: float = FAR_S,
    ) -> StageCall[Any]:
        """A call of the stage on a batch, a new one unless it is given."""
        key = CallKey(**(batch or self.new_batch()).model_dump(), stage=self.stage)
        return StageCall[Any](
            key=key, fence=fence, policy=policy, deadline_at=time.time() + deadline_in_s, inputs=inputs
        )

    def missing_blob(self, kind: str) -> BlobRef:
        """A reference to what is not there."""
        return BlobRef(id=f"{self.run}/000000/{kind}-{os.urandom(8).hex()}", num_bytes=1, sha256="0" * 64)


@asynccontextmanager
async def open_workshop(settings: ConformanceSettings) -> AsyncIterator[Workshop | None]:
    """The store of the settings, with a run that is deleted at the end; ``None`` where they name none.

    Raises ``StoreUnavailable``, ``ConformanceInvalid``.
    """
    if settings.redis_url is None:
        yield None
        return
    try:
        redis = RedisConnection(settings.redis_url, password=settings.redis_password, retry_for_s=STORE_PATIENCE_S)
        blobs = open_blobs(settings.blob_url, redis, budget_bytes=BUDGET_BYTES)
    except ValueError as error:
        raise ConformanceInvalid(str(error)) from None
    store, run = redis_store(redis), f"conformance-{os.urandom(4).hex()}"
    try:
        now = time.time()
        # Over from the beginning, so that no controller picks it up.
        record = RunRecord(id=run, state=RunState.CANCELLED, created_at=now, updated_at=now, config={}, info={})
        await store.runs.create(record, idempotency_key=None, digest=run)
        for _ in range(FENCE):
            await store.runs.acquire(run, owner="conformance", ttl_s=2 * FAR_S)
        yield Workshop(store=store, blobs=blobs, run=run, stage=settings.stage)
    finally:
        try:
            await blobs.delete_run(run)
            await store.runs.delete(run)
        finally:
            await redis.close()
