"""Owns runs, one after another: the oldest that is not finished comes first, the others wait.

One active run per set of functions: every controller on a store follows the same rule, and ownership is a lease with a
rising fence, so a second controller waits for its turn or for the first one's end.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.platforms.base import FunctionUnknown, Platform
from controller.runs.config.load import load_config
from controller.runs.config.problems import ConfigInvalid
from controller.runs.context import RunContext
from controller.runs.data.library import DatasetLibrary
from controller.runs.errors import RunFailed, RunLost
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.ledger import Price
from controller.runs.loop import RunLoop
from controller.runs.prepared import Prepared, prepare
from controller.runs.resources import resources_of
from controller.runs.run_functions import RunFunctions, stages_of
from controller.runs.scrubbing import scrubbed_text
from controller.runs.stage_client import StageClient
from controller.runs.state import PENDING, RunState
from controller.runs.unchanged import check_unchanged
from controller.settings import ControllerSettings
from shared.contracts.errors import StageError, StaleFence, StoreRefused, StoreUnavailable
from shared.contracts.stage import Stage
from shared.service.ending import end_task
from shared.store.base import Owned, RunRecord, Store
from shared.store.blobs import BlobStore

log = logging.getLogger(__name__)

OWNER_TTL_S = 10.0
"""A controller that is silent for this long has lost its run."""
RENEW_EVERY_S = 1.0
LOOK_EVERY_S = 1.0


class Supervisor:
    """Drives the runs of one store on one platform."""

    def __init__(
        self,
        settings: ControllerSettings,
        store: Store,
        blobs: BlobStore,
        platform: Platform,
        *,
        token: str,
        swaps: FunctionSwaps | None = None,
    ) -> None:
        """``token`` is what the functions ask of their callers; ``swaps``: changes of the functions, if there may be
        any. With them functions are also checked before a run, and looked at between its steps.
        """
        self._settings = settings
        self._store = store
        self._blobs = blobs
        self._platform = platform
        self._token = token
        self._swaps = swaps
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{os.urandom(4).hex()}"
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look at the runs now: one was added, or asked to be cancelled."""
        self._wake.set()

    async def run_forever(self) -> None:
        """Own and drive runs until cancelled."""
        while True:
            try:
                if self._swaps is not None and await self._is_idle():
                    await self._swaps.perform_idle()
                record = await self._next()
                worked = record is not None and await self._take(record)
            except (StoreUnavailable, StoreRefused) as error:
                log.warning("waiting for the store: %s", error.message)
                worked = False
            if not worked:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), LOOK_EVERY_S)

    async def _next(self) -> RunRecord | None:
        records = await self._store.runs.list()
        return next((record for record in records if record.state in PENDING), None)

    async def _is_idle(self) -> bool:
        """Whether no run goes on, here or with another controller: those that wait do not use the functions yet."""
        states = [RunState(record.state) for record in await self._store.runs.list()]
        return all(state is RunState.QUEUED or state.is_terminal for state in states)

    async def _take(self, record: RunRecord) -> bool:
        """Own the run and drive it to where it ends. False if another controller owns it."""
        owned = await self._store.runs.acquire(record.id, owner=self._owner, ttl_s=OWNER_TTL_S)
        if owned is None:
            return False
        try:
            return await self._work_on(record, owned)
        finally:
            with contextlib.suppress(StoreUnavailable):
                await self._store.runs.relinquish(record.id, owner=self._owner)

    async def _work_on(self, record: RunRecord, owned: Owned) -> bool:
        """Drive an owned run and note how it ended. False if it had ended before it was owned."""
        started = {"started_at": record.info.get("started_at") or self._platform.now(), "error": None}
        if not await self._change(record.id, owned, RunState.RUNNING, started):
            return False
        drive = asyncio.create_task(self._drive(record, owned), name=f"run {record.id}")
        try:
            ended, info = await self._watch(record.id, owned, drive)
        except asyncio.CancelledError:
            # This controller is told to end; whoever owns the run next goes on at its head.
            await end_task(drive)
            with contextlib.suppress(StoreUnavailable):
                await self._change(record.id, owned, RunState.PAUSED, {})
            raise
        finally:
            # Before its replicas are freed: a call that goes on would ask for new ones.
            await end_task(drive)
        if ended is not None:
            await self._free_replicas()
            await self._change(record.id, owned, ended, {**info, "finished_at": self._platform.now()})
        return True

    async def _watch(
        self, run: str, owned: Owned, drive: asyncio.Task[None]
    ) -> tuple[RunState | None, Mapping[str, Any]]:
        """Keep the ownership alive while the run is driven; how it ended, ``None`` if it was lost.

        Raises ``StoreUnavailable`` where the run has to wait for the store: it is not to blame.
        """
        cancelled = owned.cancel_requested
        while not drive.done() and not cancelled:
            self._wake.clear()
            waker = asyncio.create_task(self._wake.wait())
            await asyncio.wait({drive, waker}, timeout=RENEW_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            waker.cancel()
            with contextlib.suppress(StoreUnavailable):
                kept = await self._store.runs.renew(run, owner=self._owner, ttl_s=OWNER_TTL_S)
                if kept is None:
                    log.warning("another controller owns run %s now", run)
                    return None, {}
                cancelled = kept.cancel_requested
        if not drive.done():
            return RunState.CANCELLED, {}
        try:
            drive.result()
        except (RunLost, StaleFence) as error:
            log.warning("%s", error)
            return None, {}
        except StoreUnavailable:
            raise
        except (RunFailed, StageError, ConfigInvalid, FunctionUnknown) as error:
            return RunState.FAILED, {"error": scrubbed_text(str(error))}
        except Exception as error:
            log.exception("run %s failed", run)
            return RunState.FAILED, {"error": f"the controller failed with {type(error).__name__}: see its log"}
        return RunState.SUCCEEDED, {}

    async def _drive(self, record: RunRecord, owned: Owned) -> None:
        settings = self._settings
        prepared = await asyncio.to_thread(
            prepare,
            load_config(record.config),
            settings.roots,
            allow_hub=settings.allow_hub,
            library=DatasetLibrary(settings.dataset_root),
        )
        for line in await asyncio.to_thread(check_unchanged, record.info.get("digests"), prepared):
            await self._store.events.append(record.id, "log", {"level": "warning", "message": line})
        run = await self._context(record, owned, prepared)
        if self._swaps is not None:
            functions = RunFunctions(
                self._platform,
                self._swaps,
                stages_of(prepared.config),
                token=self._token,
                notify=run.notify,
                tokenizer=prepared.tokenizer.fingerprint if prepared.tokenizer is not None else None,
            )
            await functions.begin()
            run = replace(run, between_steps=functions.between_steps)
        await RunLoop(run).drive()

    async def _context(self, record: RunRecord, owned: Owned, prepared: Prepared) -> RunContext:
        async def emit(kind: str, data: Mapping[str, Any]) -> None:
            await self._store.events.append(record.id, kind, data)

        async def notify(text: str) -> None:
            # What a function failed with may quote the user's own code and addresses.
            line = scrubbed_text(text)
            log.warning("%s", line, extra={"run": record.id})
            await emit("log", {"level": "warning", "message": line})

        config, settings = prepared.config, self._settings
        functions = await self._platform.functions()
        return RunContext(
            run=record.id,
            config=config,
            prepared=prepared,
            fence=owned.fence,
            store=self._store,
            blobs=self._blobs,
            platform=self._platform,
            client=StageClient(
                self._platform,
                token=self._token,
                fence=owned.fence,
                timeout_s=settings.call_timeout_s,
                notify=notify,
                trace_id=record.id,
            ),
            resources=resources_of(
                functions, self._platform.figures(), num_threads=config.platform.threads or settings.num_threads
            ),
            price=Price(cpu_hour_usd=settings.cpu_hour_usd, gpu_hour_usd=settings.gpu_hour_usd),
            checkpoint_root=checkpoint_root(settings, prepared, record.id),
            emit=emit,
            notify=notify,
            resume_from=Path(record.info["resume_from"]) if record.info.get("resume_from") else None,
        )

    async def _change(self, run: str, owned: Owned, state: RunState, info: Mapping[str, Any]) -> bool:
        """Note the run's state; False if it has ended, or if another controller owns it now."""
        changed = await self._store.runs.transition(run, to=state, allowed=PENDING, info=info, fence=owned.fence)
        if changed:
            reason = {"reason": info["error"]} if info.get("error") else {}
            await self._store.events.append(run, "state", {"state": state, **reason})
        return changed

    async def _free_replicas(self) -> None:
        """Nothing that does not compute may be held: the run is over or cancelled."""
        for stage in Stage:
            with contextlib.suppress(FunctionUnknown):
                await self._platform.release(stage)


def checkpoint_root(settings: ControllerSettings, prepared: Prepared, run: str) -> Path:
    """The folder of the run's checkpoints: its own, for two runs of one experiment must not overwrite each other."""
    return all_checkpoints(settings, prepared) / prepared.config.trainer.project_name / run


def all_checkpoints(settings: ControllerSettings, prepared: Prepared) -> Path:
    """The folder that has the checkpoints of the run's project and of others."""
    folder = prepared.config.trainer.default_local_dir
    return Path(folder) if folder else settings.checkpoint_root
