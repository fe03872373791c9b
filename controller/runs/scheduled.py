"""What can be asked of runs' schedules: plans, traces, and what a run would take, without starting it."""

import asyncio
import logging
from collections.abc import AsyncIterator

from controller.platforms.base import Platform
from controller.runs.answers import answer_tokens
from controller.runs.data.position import DataPosition
from controller.runs.errors import NotPlannedYet, StepUnknown
from controller.runs.expectation import Expectation, expectation
from controller.runs.fingerprint import architecture
from controller.runs.ledger import Price
from controller.runs.length_history import parse_records, row_and_epoch
from controller.runs.past_steps import PastSteps
from controller.runs.plan_records import PlanRecord, parse_record
from controller.runs.planning import Known, with_earlier_runs
from controller.runs.prepared import Prepared
from controller.runs.profiles import parse_speed, speed_name
from controller.runs.resources import resources_of
from controller.runs.resumption import SavedCheckpoint, read_lengths
from controller.runs.trace import TraceInvalid, decode_step
from shared.store.base import RunRecord, Store

log = logging.getLogger(__name__)


class Schedules:
    """Plans and traces of the runs in one store, and expectations on one platform."""

    def __init__(self, store: Store, platform: Platform, *, price: Price, num_threads: int) -> None:
        self._store = store
        self._platform = platform
        self._price = price
        self._num_threads = num_threads

    async def plan(self, record: RunRecord, step: int | None) -> PlanRecord:
        """The plans of a step, also while it runs; of the latest for ``None``.

        Raises ``StepUnknown``, ``NotPlannedYet``.
        """
        run, records = record.id, self._store.records
        planned = await records.planned_steps(run)
        if step is None:
            if not planned:
                raise NotPlannedYet(f"run {run} has planned no step yet: it is {record.state}")
            step = planned[-1]
        stored = await records.plan(run, step)
        if stored is None:
            raise self._missing(record, step, planned[-1] if planned else None)
        plan = parse_record(stored)
        if plan is None:
            raise StepUnknown(f"another version of rlhfless planned step {step} of run {run}: use that to read it")
        return plan

    def _missing(self, record: RunRecord, step: int, latest: int | None) -> Exception:
        total = record.info.get("total_steps")
        if total is not None and step >= total:
            return StepUnknown(f"run {record.id} has no step {step}: it has {total} steps, from 0 on")
        if latest is None or step > latest:
            stands = "no step is" if latest is None else f"step {latest} is the latest that is"
            return NotPlannedYet(f"step {step} of run {record.id} is not planned yet: {stands}")
        return StepUnknown(f"run {record.id} kept no plan of step {step}")

    async def trace(self, record: RunRecord, *, from_step: int) -> AsyncIterator[bytes]:
        """The trace of the run from a step on, as JSON lines, step by step. It ends early if the run is deleted."""
        for step in await self._store.records.traced_steps(record.id):
            stored = await self._store.records.trace(record.id, step) if step >= from_step else None
            if stored is not None:
                try:
                    yield await asyncio.to_thread(decode_step, stored)
                except TraceInvalid as error:
                    log.warning("step %d of run %s is left out: %s", step, record.id, error)

    async def expect(self, prepared: Prepared, saved: SavedCheckpoint | None) -> Expectation:
        """What a step of a run is expected to take that begins now, or goes on from a checkpoint."""
        config, platform = prepared.config, self._platform
        position = DataPosition(0) if saved is None else DataPosition(saved.head.data_cursor, saved.head.leftover_rows)
        prompts, _ = position.draw(prepared.train, prepared.sampler, config.data.train_batch_size)
        lengths = {} if saved is None else await asyncio.to_thread(read_lengths, saved.folder)
        rows = {row_and_epoch(prompt.row_uid)[0] for prompt in prompts} & lengths.keys()
        functions = await platform.functions()
        name = speed_name(functions, architecture(prepared.model_folder))
        speed = None if name is None else parse_speed(await self._store.records.profile(name))
        known = Known(
            history={row: parse_records(row, lengths[row]) for row in rows},
            answers=await answer_tokens(prepared, prompts),
            past=with_earlier_runs(PastSteps(), speed),
            speed=speed,
            functions=functions,
            lives=await platform.replicas(),
            platform=platform.figures(),
            resources=resources_of(
                functions, platform.figures(), num_threads=config.platform.threads or self._num_threads
            ),
        )
        done = 0 if saved is None else saved.head.step
        return expectation(known, prompts, config, num_steps=prepared.total_steps - done, price=self._price)
