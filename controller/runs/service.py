"""What can be asked of the runs: the REST API's counterpart, without HTTP."""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from controller.platforms.base import FunctionState, Platform
from controller.runs.checkpoints import CheckpointInfo, describe, is_writable
from controller.runs.config.load import load_config, resolved
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.data.library import DatasetLibrary
from controller.runs.datasets import Datasets
from controller.runs.due import is_finished
from controller.runs.errors import CheckpointUnknown, RunConflict, RunUnknown
from controller.runs.expectation import Expectation
from controller.runs.fingerprint import run_fingerprint
from controller.runs.holdings import Holdings, holdings
from controller.runs.ledger import Price
from controller.runs.manifest import Manifest
from controller.runs.plan_records import PlanRecord
from controller.runs.prepared import Prepared, prepare
from controller.runs.resumption import SavedCheckpoint, check_fits, find_checkpoint, read_checkpoint
from controller.runs.scheduled import Schedules
from controller.runs.scrubbing import scrubbed_text
from controller.runs.state import RunState
from controller.runs.summary import summarise
from controller.runs.supervisor import Supervisor, all_checkpoints, checkpoint_root
from controller.runs.trackers.opening import missing_libraries
from controller.settings import ControllerSettings
from shared.contracts.errors import StoreUnavailable
from shared.store.base import Event, RunRecord, Store
from shared.store.blobs import BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A run that could be started, without starting it."""

    config: Mapping[str, Any]
    """Every key with the value that holds."""
    notes: Sequence[str]
    num_rows: int
    num_heldout_rows: int
    total_steps: int


class RunService:
    """The runs of one controller."""

    def __init__(
        self,
        settings: ControllerSettings,
        store: Store,
        blobs: BlobStore,
        platform: Platform,
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._store = store
        self._blobs = blobs
        self._platform = platform
        self._supervisor = supervisor
        self._price = Price(cpu_hour_usd=settings.cpu_hour_usd, gpu_hour_usd=settings.gpu_hour_usd)
        self._since = platform.now()
        self._schedules = Schedules(store, platform, price=self._price, num_threads=settings.num_threads)
        self.datasets = Datasets(
            DatasetLibrary(settings.dataset_root), store.runs, max_bytes=settings.max_dataset_bytes
        )

    async def check(self, document: Mapping[str, Any], overrides: Sequence[str]) -> DryRun:
        """Check a config and its data. Raises ``ConfigInvalid``."""
        prepared, saved = await self._prepare(document, overrides)
        return DryRun(
            config=resolved(prepared.config),
            notes=_notes(prepared, saved),
            num_rows=len(prepared.train.prompts),
            num_heldout_rows=len(prepared.heldout),
            total_steps=prepared.total_steps,
        )

    async def submit(
        self, document: Mapping[str, Any], overrides: Sequence[str], *, idempotency_key: str | None
    ) -> RunRecord:
        """Queue a run, or return the one that the key stands for. Raises ``ConfigInvalid``, ``CallConflict``."""
        prepared, saved = await self._prepare(document, overrides)
        config, notes = resolved(prepared.config), _notes(prepared, saved)
        digests = await asyncio.to_thread(run_fingerprint, prepared)
        now = self._platform.now()
        record = RunRecord(
            id=new_run_id(prepared.config.trainer.experiment_name, now),
            state=RunState.QUEUED,
            created_at=now,
            updated_at=now,
            config=config,
            info={
                "total_steps": prepared.total_steps,
                "notes": notes,
                "digests": digests,
                "resume_from": None if saved is None else str(saved.folder),
            },
        )
        root = checkpoint_root(self._settings, prepared, record.id)
        if (why := await asyncio.to_thread(is_writable, root)) is not None:
            raise ConfigInvalid(
                [
                    ConfigProblem(
                        field="trainer.default_local_dir",
                        reason=f"checkpoints cannot be written to {root}: {why}",
                        suggestion="name a folder that the controller can write to",
                    )
                ]
            )
        digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
        stored = await self._store.runs.create(record, idempotency_key=idempotency_key, digest=digest)
        if stored.id == record.id:
            await self._store.events.append(record.id, "state", {"state": RunState.QUEUED})
            for note in notes:
                await self._store.events.append(record.id, "log", {"level": "info", "message": note})
        self._supervisor.wake()
        return stored

    async def _prepare(
        self, document: Mapping[str, Any], overrides: Sequence[str]
    ) -> tuple[Prepared, SavedCheckpoint | None]:
        """The run's model and data, and the checkpoint that it begins from."""
        settings, config = self._settings, load_config(document, overrides)
        if missing := missing_libraries(config):
            raise ConfigInvalid(missing)

        def read() -> tuple[Prepared, SavedCheckpoint | None]:
            prepared = prepare(
                config,
                settings.roots,
                allow_hub=settings.allow_hub,
                library=DatasetLibrary(settings.dataset_root),
            )
            folder = find_checkpoint(prepared.config, settings.roots, all_checkpoints(settings, prepared))
            saved = None if folder is None else read_checkpoint(folder)
            if saved is not None:
                check_fits(saved, prepared)
            return prepared, saved

        return await asyncio.to_thread(read)

    async def get(self, run: str) -> RunRecord:
        """One run. Raises ``RunUnknown``."""
        record = await self._store.runs.get(run)
        if record is None:
            known = [other.id for other in await self._store.runs.list()]
            close = get_close_matches(run, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise RunUnknown(f"there is no run {run!r}{hint}")
        return record

    async def list(self) -> Sequence[RunRecord]:
        """All runs, oldest first."""
        return await self._store.runs.list()

    async def cancel(self, run: str) -> RunRecord:
        """Stop the run and free its replicas. Raises ``RunUnknown``, ``RunConflict`` if it has ended."""
        record = await self.get(run)
        if RunState(record.state).is_terminal:
            raise RunConflict(f"run {run} has {record.state} already: there is nothing to cancel")
        await self._store.runs.request_cancel(run)
        if await self._store.runs.transition(
            run, to=RunState.CANCELLED, allowed=(RunState.QUEUED,), info={"finished_at": self._platform.now()}
        ):
            await self._store.events.append(run, "state", {"state": RunState.CANCELLED})
        self._supervisor.wake()
        return await self.get(run)

    async def resume(self, run: str) -> RunRecord:
        """Queue the run again, to go on at its head. Raises ``RunUnknown``, ``RunConflict``."""
        record = await self.get(run)
        state = RunState(record.state)
        if state is RunState.SUCCEEDED:
            raise RunConflict(
                f"run {run} has succeeded: resuming it would do nothing. Start a new run to go further, "
                "with trainer.resume_mode=resume_path"
            )
        if not state.is_resumable:
            raise RunConflict(f"run {run} is {record.state}: it needs no resuming")
        if await self._has_done_all(record):
            raise RunConflict(
                f"run {run} has done all its {record.info['total_steps']} steps: resuming it would do nothing. Start a "
                "new run to go further, with trainer.resume_mode=resume_path"
            )
        await self._store.runs.request_cancel(run, requested=False)
        if await self._store.runs.transition(
            run, to=RunState.QUEUED, allowed=(state,), info={"error": None, "finished_at": None}
        ):
            await self._store.events.append(run, "state", {"state": RunState.QUEUED, "reason": "resumed"})
        self._supervisor.wake()
        return await self.get(run)

    async def _has_done_all(self, record: RunRecord) -> bool:
        """Whether nothing is left to do between the run's head and its end."""
        stored = await self._store.runs.head(record.id)
        if stored is None:
            return False
        config = load_config(record.config)
        return is_finished(
            Manifest.model_validate_json(stored),
            config.trainer,
            total_steps=record.info["total_steps"],
            has_heldout=config.data.has_heldout,
        )

    async def delete(self, run: str) -> None:
        """Forget the run and its blobs; checkpoints on disk stay. Raises ``RunUnknown``, ``RunConflict``."""
        record = await self.get(run)
        if not RunState(record.state).is_terminal:
            raise RunConflict(f"run {run} is {record.state}: cancel it first")
        await self._blobs.delete_run(run)
        with contextlib.suppress(StoreUnavailable):  # what is left there ends by itself
            await self._store.prefix_kv.delete_run(run)
        await self._store.runs.delete(run)

    async def history(self, run: str) -> Sequence[Mapping[str, Any]]:
        """One line per step, evaluation and checkpoint, oldest first. Raises ``RunUnknown``."""
        await self.get(run)
        return await self._store.runs.history(run)

    async def summary(self, run: str) -> Mapping[str, Any]:
        """What the run has come to so far. Raises ``RunUnknown``."""
        record = await self.get(run)
        history = await self._store.runs.history(run)
        return summarise(history, started_at=record.info.get("started_at"))

    async def plan(self, run: str, step: int | None = None) -> PlanRecord:
        """The plans of a step, the latest by default, and what came of them. Raises ``RunUnknown``, ``StepUnknown``,
        ``NotPlannedYet``."""
        return await self._schedules.plan(await self.get(run), step)

    async def trace(self, run: str, *, from_step: int = 0) -> AsyncIterator[bytes]:
        """The run's trace, as JSON lines, step by step. Raises ``RunUnknown``."""
        return self._schedules.trace(await self.get(run), from_step=from_step)

    async def expect(self, document: Mapping[str, Any], overrides: Sequence[str]) -> Expectation:
        """What a step of such a run is expected to take. Nothing is started. Raises ``ConfigInvalid``."""
        return await self._schedules.expect(*await self._prepare(document, overrides))

    async def events(self, run: str, *, after: str, wait_s: float) -> Sequence[Event]:
        """Events after an id; waits for the first one. Raises ``RunUnknown``."""
        await self.get(run)
        return await self._store.events.read(run, after=after, wait_s=wait_s)

    async def checkpoints(self, run: str) -> Sequence[CheckpointInfo]:
        """The run's complete checkpoints, oldest first. Raises ``RunUnknown``."""
        await self.get(run)
        head = await self._store.runs.head(run)
        if head is None:
            return []
        return await asyncio.to_thread(describe, Manifest.model_validate_json(head).checkpoints)

    async def checkpoint_folder(self, run: str, step: int) -> Path:
        """Where the checkpoint of a step lies. Raises ``RunUnknown``, ``CheckpointUnknown``."""
        there = await self.checkpoints(run)
        for checkpoint in there:
            if checkpoint.step == step:
                return Path(checkpoint.folder)
        steps = ", ".join(str(checkpoint.step) for checkpoint in there) or "none"
        raise CheckpointUnknown(f"run {run} has no checkpoint of step {step}; there are: {steps}")

    async def functions(self) -> Sequence[FunctionState]:
        """All functions and their replicas."""
        return await self._platform.functions()

    async def holdings(self) -> Holdings:
        """The replicas that the platform knows of, and what they have cost since this controller started."""
        lives = await self._platform.replicas()
        return holdings(lives, since=self._since, now=self._platform.now(), price=self._price)

    @property
    def platform_name(self) -> str:
        """``local``, ``knative`` or ``simulated``: adapters are named by their folder."""
        return type(self._platform).__module__.split(".")[-2]

    async def unready(self) -> Sequence[str]:
        """Why the controller cannot work now; empty if it can."""
        try:
            await asyncio.wait_for(self._store.runs.get("readiness"), timeout=2.0)
        except (StoreUnavailable, TimeoutError):
            return ["Redis does not answer"]
        return []


def _notes(prepared: Prepared, saved: SavedCheckpoint | None) -> list[str]:
    """What was decided for the user."""
    begins = [] if saved is None else [f"goes on at step {saved.head.step} from {saved.folder} (run {saved.run.run})"]
    return [scrubbed_text(note) for note in (*prepared.notes, *begins)]


def new_run_id(name: str | None, now: float) -> str:
    """An id that sorts by time and says which experiment it is."""
    stem = "".join(char if char.isalnum() and char.isascii() else "-" for char in (name or "run").lower()).strip("-")
    moment = time.strftime("%m%d-%H%M%S", time.gmtime(now))
    return f"{stem[:32].strip('-') or 'run'}-{moment}-{os.urandom(2).hex()}"
