"""The controller's parts in the test's own process, so that a test can stand between them.

Composed as ``controller.main`` does it: a real Redis, functions in processes of their own, the supervisor, the service.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.platforms.base import Platform
from controller.platforms.local.local_settings import ensure_token, local_settings
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.redis_address import redis_address
from controller.runs.manifest import Manifest
from controller.runs.service import RunService
from controller.runs.state import RunState
from controller.runs.supervisor import Supervisor
from controller.settings import REPOSITORY, ControllerSettings
from shared.codec.completions import decode_completion
from shared.contracts.call import BatchKey
from shared.contracts.completion import Completion, SampleId
from shared.service.ending import end_task
from shared.store import keys
from shared.store.base import RunRecord, Store, WorkStore
from shared.store.blobs import BlobStore
from shared.store.opening import open_blobs, redis_store
from shared.store.redis_connection import RedisConnection, text
from tests.e2e.waiting import wait_until_async
from tests.e2e.weights import Weights, read_weights
from tests.e2e.workspace import Workspace


class Keeping:
    """A work store that keeps a copy of every batch's completions before it sweeps the batch."""

    def __init__(self, work: WorkStore, redis: RedisConnection) -> None:
        self._work = work
        self._redis = redis
        self.completions: dict[BatchKey, dict[SampleId, Completion]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    async def sweep(self, batch: BatchKey) -> None:
        """Copy, then sweep."""
        ids = [SampleId.parse(text(id)) for id in await self._redis.command("HKEYS", keys.samples(batch))]
        if ids:
            stored = await self._work.samples(batch, ids)
            self.completions[batch] = {id: decode_completion(data) for id, data in stored.items()}
        await self._work.sweep(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a run has left."""

    record: RunRecord
    head: Manifest
    completions: Mapping[BatchKey, Mapping[SampleId, Completion]]
    """By batch, whose run goes by the name ``any``, so that those of two runs can be compared."""
    history: list[Mapping[str, Any]]
    log: str
    """What its log says, line by line."""

    def tokens(self) -> dict[tuple[str, int], dict[SampleId, list[int]]]:
        """Token ids by (purpose, step)."""
        return {
            (batch.purpose, batch.step): {id: completion.token_ids.tolist() for id, completion in of_batch.items()}
            for batch, of_batch in self.completions.items()
        }

    def num_steps(self) -> int:
        """Steps in its history."""
        return sum(line["kind"] == "step" for line in self.history)

    def weights(self) -> Weights:
        """Those of its last checkpoint."""
        return read_weights(Path(self.head.checkpoints[-1].folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The controller's parts, to be put together anew for each run."""

    settings: ControllerSettings
    redis: RedisConnection
    store: Store
    blobs: BlobStore
    platform: LocalPlatform
    token: str

    async def run(self, config: Mapping[str, Any], *, platform: Platform | None = None) -> Finished:
        """Drive a new run to its end, on a platform that may stand before the real one."""

        async def submit(service: RunService) -> RunRecord:
            return await service.submit(config, (), idempotency_key=None)

        return await self._to_the_end(submit, platform or self.platform)

    async def resume(self, run: str) -> Finished:
        """Drive an ended run on to its next end."""

        async def resume(service: RunService) -> RunRecord:
            return await service.resume(run)

        return await self._to_the_end(resume, self.platform)

    async def _to_the_end(self, begin: Callable[[RunService], Awaitable[RunRecord]], platform: Platform) -> Finished:
        kept = Keeping(self.store.work, self.redis)
        store = replace(self.store, work=kept)
        async with self.serving(store, platform) as service:
            run = (await begin(service)).id

            async def ended() -> bool:
                return RunState((await service.get(run)).state).is_terminal

            await wait_until_async(ended, what=f"run {run} to end")
            head = await store.runs.head(run)
            assert head is not None, (await service.get(run)).info
            events = await store.events.read(run)
            return Finished(
                record=await service.get(run),
                head=Manifest.model_validate_json(head),
                completions={
                    BatchKey(**{**batch.model_dump(), "run": "any"}): c for batch, c in kept.completions.items()
                },
                history=list(await service.history(run)),
                log="\n".join(str(event.data["message"]) for event in events if event.kind == "log"),
            )

    @contextlib.asynccontextmanager
    async def serving(self, store: Store, platform: Platform) -> AsyncIterator[RunService]:
        """The runs' service, with somebody who drives them."""
        supervisor = Supervisor(self.settings, store, self.blobs, platform, token=self.token)
        driving = asyncio.create_task(supervisor.run_forever())
        try:
            yield RunService(self.settings, store, self.blobs, platform, supervisor)
        finally:
            await end_task(driving)


@contextlib.asynccontextmanager
async def composed(workspace: Workspace, state_dir: Path) -> AsyncIterator[Parts]:
    """The parts on a started platform, whose manifests a test may change."""
    manifests = state_dir / "manifests"
    shutil.copytree(REPOSITORY / "deploy" / "base" / "functions", manifests)
    settings = ControllerSettings.from_environment(
        {
            "RLHFLESS_STATE_DIR": str(state_dir),
            "RLHFLESS_ROOTS": str(workspace.root),
            "RLHFLESS_THREADS": "2",
            "RLHFLESS_MANIFESTS": str(manifests),
        }
    )
    token_file = state_dir / "token"
    token = ensure_token(token_file)
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(redis_address(settings))
        redis = RedisConnection(address.url, password=address.password)
        stack.push_async_callback(redis.close)
        platform = LocalPlatform(local_settings(settings, address, token_file))
        await stack.enter_async_context(platform)
        yield Parts(
            settings=settings,
            redis=redis,
            store=redis_store(redis),
            blobs=open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes),
            platform=platform,
            token=token,
        )
