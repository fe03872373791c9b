"""A run service in memory: the real config parser, and runs that do only what a test tells them to."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.platforms.base import FunctionState, ReplicaLife, RevisionState
from controller.platforms.editing import FunctionChange, FunctionEditor, Proposal
from controller.runs.checkpoints import CheckpointInfo
from controller.runs.config.load import load_config, resolved
from controller.runs.errors import CheckpointUnknown, NotPlannedYet, RunConflict, RunUnknown, StepUnknown
from controller.runs.expectation import Expectation, expectation
from controller.runs.holdings import Holdings, holdings
from controller.runs.ledger import Price
from controller.runs.plan_records import PlanRecord
from controller.runs.service import DryRun
from controller.runs.state import RunState
from controller.runs.summary import summarise
from shared.contracts.errors import CallConflict
from shared.contracts.stage import Stage
from shared.store.base import Event, RunRecord
from tests.fakes.planned import known, prompts_of_epoch

NUM_ROWS = 100
CONFIG = {
    "model": {"path": "tiny"},
    "data": {"train_files": "train.jsonl", "val_files": "held_out.jsonl"},
    "reward": {"rule": "exact_number"},
    "trainer": {"total_training_steps": 4},
}
"""A config that the parser accepts."""


class NoEditor:
    """Is there, and is not asked."""

    async def route(self, function: str, revision: str) -> None:
        raise AssertionError

    async def propose(self, function: str, change: FunctionChange) -> Proposal:
        raise AssertionError

    async def withdraw(self, proposal: Proposal) -> str:
        raise AssertionError


class FakeService:
    """``RunService`` without files, store and platform."""

    def __init__(self) -> None:
        self.records: dict[str, RunRecord] = {}
        self.logs: dict[str, list[Event]] = {}
        self.lines: dict[str, list[dict[str, Any]]] = {}
        self.folders: dict[str, dict[int, Path]] = {}
        self.plans: dict[str, dict[int, PlanRecord]] = {}
        self.traces: dict[str, dict[int, bytes]] = {}
        self.reasons: list[str] = []
        self.lives: list[ReplicaLife] = []
        self.platform_name = "simulated"
        self.editor: FunctionEditor | None = NoEditor()
        """None: the functions cannot be changed."""
        self.failure: Exception | None = None
        """Raised by the next call of any method."""
        self.keys: dict[str, tuple[Mapping[str, Any], str]] = {}
        self.waiting = asyncio.Event()
        """Somebody waits for events."""
        self.given_up = asyncio.Event()
        """Somebody who waited for events was cancelled."""
        self._said = asyncio.Condition()

    def add(self, run: str, state: RunState = RunState.RUNNING, **info: Any) -> RunRecord:
        """A run that is there already."""
        number = float(len(self.records))
        record = RunRecord(id=run, state=state, created_at=number, updated_at=number, config=CONFIG, info=info)
        self.records[run] = record
        self.logs[run], self.lines[run], self.folders[run] = [], [], {}
        self.plans[run], self.traces[run] = {}, {}
        return record

    async def emit(self, run: str, kind: str, data: Mapping[str, Any]) -> None:
        """Something happens in a run; a state changes its record first, as the supervisor does it."""
        if kind == "state":
            self.records[run] = replace(self.records[run], state=RunState(data["state"]))
        async with self._said:
            self.logs[run].append(Event(f"{1_700_000_000_000 + len(self.logs[run])}-0", kind, data))
            if kind in ("step", "eval", "checkpoint"):
                self.lines[run].append({"kind": kind, "time": 10.0 + len(self.lines[run]), **data})
            self._said.notify_all()

    async def check(self, document: Mapping[str, Any], overrides: Sequence[str]) -> DryRun:
        self._fail()
        config = load_config(document, overrides)
        return DryRun(
            config=resolved(config),
            notes=["train.jsonl: prompt from question"],
            num_rows=NUM_ROWS,
            num_heldout_rows=10,
            total_steps=config.total_steps(NUM_ROWS),
        )

    async def submit(
        self, document: Mapping[str, Any], overrides: Sequence[str], *, idempotency_key: str | None
    ) -> RunRecord:
        config = (await self.check(document, overrides)).config
        if idempotency_key in self.keys:
            earlier, run = self.keys[idempotency_key]
            if earlier != config:
                raise CallConflict(f"idempotency key {idempotency_key!r} stands for another config", run=run)
            return self.records[run]
        record = self.add(f"run-{len(self.records)}", RunState.QUEUED)
        record = self.records[record.id] = replace(record, config=config)
        if idempotency_key is not None:
            self.keys[idempotency_key] = config, record.id
        return record

    async def get(self, run: str) -> RunRecord:
        self._fail()
        if run not in self.records:
            raise RunUnknown(f"there is no run {run!r}")
        return self.records[run]

    async def list(self) -> Sequence[RunRecord]:
        self._fail()
        return list(self.records.values())

    async def cancel(self, run: str) -> RunRecord:
        if RunState((await self.get(run)).state).is_terminal:
            raise RunConflict(f"run {run} has ended already")
        self.records[run] = replace(self.records[run], state=RunState.CANCELLED, cancel_requested=True)
        return self.records[run]

    async def resume(self, run: str) -> RunRecord:
        if not RunState((await self.get(run)).state).is_resumable:
            raise RunConflict(f"run {run} needs no resuming")
        self.records[run] = replace(self.records[run], state=RunState.QUEUED)
        return self.records[run]

    async def delete(self, run: str) -> None:
        if not RunState((await self.get(run)).state).is_terminal:
            raise RunConflict(f"run {run} is active: cancel it first")
        del self.records[run]

    async def history(self, run: str) -> Sequence[Mapping[str, Any]]:
        await self.get(run)
        return self.lines[run]

    async def summary(self, run: str) -> Mapping[str, Any]:
        record = await self.get(run)
        return summarise(self.lines[run], started_at=record.created_at)

    async def plan(self, run: str, step: int | None = None) -> PlanRecord:
        await self.get(run)
        plans = self.plans[run]
        if not plans or (step is not None and step > max(plans)):
            raise NotPlannedYet(f"step {step} of run {run} is not planned yet")
        step = max(plans) if step is None else step
        if step not in plans:
            raise StepUnknown(f"run {run} kept no plan of step {step}")
        return plans[step]

    async def trace(self, run: str, *, from_step: int = 0) -> AsyncIterator[bytes]:
        await self.get(run)

        async def lines() -> AsyncIterator[bytes]:
            for step, text in sorted(self.traces[run].items()):
                if step >= from_step:
                    yield text

        return lines()

    async def expect(self, document: Mapping[str, Any], overrides: Sequence[str]) -> Expectation:
        self._fail()
        config = load_config(document, overrides)
        price = Price(cpu_hour_usd=36.0, gpu_hour_usd=0.0)
        return expectation(known(), prompts_of_epoch(4), config, num_steps=4, price=price)

    async def events(self, run: str, *, after: str, wait_s: float) -> Sequence[Event]:
        await self.get(run)

        def later() -> list[Event]:
            return [event for event in self.logs[run] if _place(event.id) > _place(after)]

        self.waiting.set()
        try:
            async with asyncio.timeout(wait_s), self._said:
                await self._said.wait_for(later)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return later()[:2]

    async def checkpoints(self, run: str) -> Sequence[CheckpointInfo]:
        await self.get(run)
        return [
            CheckpointInfo(step=step, folder=str(folder), num_bytes=7, created_at=1.0)
            for step, folder in sorted(self.folders[run].items())
        ]

    async def checkpoint_folder(self, run: str, step: int) -> Path:
        await self.get(run)
        if step not in self.folders[run]:
            raise CheckpointUnknown(f"run {run} has no checkpoint of step {step}")
        return self.folders[run][step]

    async def functions(self) -> Sequence[FunctionState]:
        self._fail()
        return [
            FunctionState(
                name="rollout",
                stages=(Stage.ROLLOUT,),
                url="http://127.0.0.1:9001",
                revision="rollout-00001",
                image="rlhfless/function-cpu:0.1.0",
                ready=True,
                reason="",
                num_replicas=2,
                num_ready=2,
                num_pending=0,
                num_in_flight=1,
                num_queued=0,
                min_scale=0,
                max_scale=8,
                revisions=(RevisionState(name="rollout-00001", percent=100, num_replicas=2),),
            )
        ]

    async def holdings(self) -> Holdings:
        self._fail()
        return holdings(self.lives, since=0.0, now=100.0, price=Price(cpu_hour_usd=36.0, gpu_hour_usd=0.0))

    async def unready(self) -> Sequence[str]:
        self._fail()
        return self.reasons

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def _place(event: str) -> tuple[int, int]:
    time, _, number = event.partition("-")
    return int(time), int(number or 0)
