"""The loop of one run: initialise, then evaluate, checkpoint and step until the last step is done.

Everything that a crash must not lose is in the manifest, and the manifest moves by compare-and-set. So the loop has no
state of its own: whoever owns the run reads the head and goes on.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from controller.runs.accountant import Accountant
from controller.runs.checkpoints import SavedRun, write_checkpoint
from controller.runs.context import RunContext
from controller.runs.due import checkpoint_due, evaluation_due
from controller.runs.errors import RunLost
from controller.runs.evaluation import evaluate
from controller.runs.holding import Holding
from controller.runs.initial import initial_head
from controller.runs.length_history import format_file
from controller.runs.manifest import Manifest
from controller.runs.profiles import measure_speed
from controller.runs.resumption import check_fits, import_checkpoint, read_checkpoint, read_lengths, saved_run
from controller.runs.retention import metric_at, remove, retained
from controller.runs.rounds import max_rounds
from controller.runs.step import run_step
from controller.runs.timings import step_timings
from controller.runs.trackers.opening import open_trackers
from controller.runs.trackers.tracking import NOT_TRACKED
from shared.contracts.call import BatchKey
from shared.contracts.errors import StoreRefused, StoreUnavailable
from shared.contracts.stage import Purpose, Stage
from shared.observability.metrics import STEP_SECONDS, STEPS
from shared.service.ending import end_task
from shared.service.together import together
from shared.store.records import StepRecords

log = logging.getLogger(__name__)

WARM_UP_HOLD_S = 60.0
"""How long the first replicas are asked for before their first call: longer than any cold start seen."""


class RunLoop:
    """Drives one run for its owner."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._accountant = Accountant(run.platform, run.price)
        self._cleaning: asyncio.Task[None] | None = None
        self._cleaned_to: int | None = None
        """The first step whose batch may still be stored; ``None`` before the head is known."""
        self._trackers = NOT_TRACKED
        self._holding = Holding(run)
        self._saved_run: SavedRun | None = None
        """What checkpoints say of the run, once the first one is written."""

    async def drive(self) -> Manifest:
        """Go on from the head until the run is complete. Raises ``RunFailed`` or ``RunLost``."""
        run, total = self._run, self._run.prepared.total_steps
        try:
            await self._warm_up()
            self._trackers = await open_trackers(run)
            head = await self._load_head() or await self._begin()
            # The owner before may have ended between a step and its cleaning.
            await self._clean_up(head)
            if head.step < total:
                await measure_speed(run, head)
            while True:
                trainer, has_heldout = run.config.trainer, bool(run.prepared.heldout)
                if evaluation_due(head, trainer, total_steps=total, has_heldout=has_heldout):
                    head = await self._evaluate(head)
                if checkpoint_due(head, trainer, total_steps=total):
                    head = await self._checkpoint(head)
                if head.step >= total:
                    await self._clean_up(head)
                    await self._settle_cleaning()
                    return head
                await run.between_steps()
                await run.emit("progress", {"phase": "step", "step": head.step, "total_steps": total})
                head = await self._step(head, total)
        finally:
            if self._cleaning is not None:
                await end_task(self._cleaning)
            await self._holding.close()
            await self._trackers.close()

    async def _warm_up(self) -> None:
        """Ask for the first replicas now, so that they start at the same time and not one stage after another."""
        run = self._run
        await run.emit("progress", {"phase": "starting", "total_steps": run.prepared.total_steps})
        num_actors = min(run.config.rollout.num_actors or run.resources.num_threads, run.resources.max_actors)
        hold_until = run.platform.now() + WARM_UP_HOLD_S
        wanted = {Stage.ROLLOUT: num_actors, Stage.REWARD: 1, Stage.LEARNER: 1}
        if run.config.uses_reference:
            wanted[Stage.REFERENCE] = 1
        if run.config.uses_critic:
            wanted[Stage.CRITIC] = 1
        await together(run.platform.scale(stage, count, hold_until=hold_until) for stage, count in wanted.items())

    async def _load_head(self) -> Manifest | None:
        run = self._run
        stored = await run.store.runs.head(run.run)
        if stored is None:
            return None
        head = Manifest.model_validate_json(stored)
        rewritten = head.model_dump_json().encode()
        if stored != rewritten:
            # An earlier version of the controller wrote it, without fields that have come since.
            await run.store.runs.advance(run.run, fence=run.fence, expected=stored, manifest=rewritten, history={})
        return head

    async def _begin(self) -> Manifest:
        """Set the first head: a checkpoint's, or version 0."""
        run = self._run
        if run.resume_from is None:
            return await self._initialise()
        saved = await asyncio.to_thread(read_checkpoint, run.resume_from)
        await asyncio.to_thread(check_fits, saved, run.prepared)
        lengths = await asyncio.to_thread(read_lengths, saved.folder)
        head = await import_checkpoint(saved, run.run, run.prepared, run.blobs)
        await run.store.records.put_lengths(run.run, fence=run.fence, lengths=lengths)
        line = {"kind": "resume", "step": head.step, "checkpoint": str(saved.folder), "from_run": saved.run.run}
        await self._advance(None, head, line | {"ledger": await self._ledger("init")})
        await run.emit("log", {"level": "info", "message": f"goes on at step {head.step} from {saved.folder}"})
        return head

    async def _initialise(self) -> Manifest:
        """Publish version 0 and set the first head."""
        head = await initial_head(self._run)
        await self._advance(None, head, {"kind": "init", "step": 0, "ledger": await self._ledger("init")})
        return head

    async def _step(self, head: Manifest, total: int) -> Manifest:
        run = self._run
        self._holding.begin_step(is_last=head.step + 1 >= total, evaluates=bool(run.prepared.heldout))
        outcome = await run_step(run, head, self._holding)
        metrics = outcome.metrics | step_timings(run.client.records, outcome.metrics["timing_s/step"])
        metrics |= self._holding.note(run.client.records)
        num_rows = run.prepared.sampler.num_rows
        metrics |= {
            "training/global_step": float(outcome.manifest.step),
            "training/epoch": outcome.manifest.data_cursor / num_rows,
        }
        ledger = await self._ledger(Purpose.TRAIN)
        line = {"kind": "step", "step": head.step, "metrics": metrics, "ledger": ledger}
        await self._advance(head, outcome.manifest, line, outcome.records)
        await self._clean_up(outcome.manifest)
        await run.emit("step", line | {"total_steps": total, "replicas": await self._num_replicas()})
        STEPS.inc()
        STEP_SECONDS.observe(metrics["timing_s/step"])
        return outcome.manifest

    async def _evaluate(self, head: Manifest) -> Manifest:
        run = self._run
        await run.emit("progress", {"phase": "evaluating", "step": head.step})
        result = await evaluate(run, head)
        self._holding.note(run.client.records)
        line = {"kind": "eval", "step": head.step, **asdict(result), "ledger": await self._ledger(Purpose.EVAL)}
        advanced = head.model_copy(update={"evaluated": (*head.evaluated, head.step)})
        await self._advance(head, advanced, line)
        await run.emit("eval", line)
        return advanced

    async def _checkpoint(self, head: Manifest) -> Manifest:
        run, trainer = self._run, self._run.config.trainer
        history = await run.store.runs.history(run.run)
        earlier = await run.blobs.get(head.earlier_history) if head.earlier_history is not None else b""
        if self._saved_run is None:
            self._saved_run = await asyncio.to_thread(saved_run, run.run, run.prepared)
        written = await write_checkpoint(
            head,
            run.blobs,
            root=run.checkpoint_root,
            model_folder=run.prepared.model_folder,
            saved_run=self._saved_run,
            history=earlier + "".join(f"{json.dumps(line)}\n" for line in history).encode(),
            lengths=format_file(await run.store.records.all_lengths(run.run)),
            fence=run.fence,
            metric=metric_at(history, head.step, trainer.best_metric),
        )
        there = (*head.checkpoints, written)
        kept = retained(there, newest=trainer.max_ckpt_to_keep, best=trainer.keep_best, mode=trainer.best_mode)
        await asyncio.to_thread(remove, [checkpoint for checkpoint in there if checkpoint not in kept])
        advanced = head.model_copy(update={"checkpoints": kept})
        line = {"kind": "checkpoint", "step": head.step, "folder": written.folder}
        await self._advance(head, advanced, line)
        await run.emit("checkpoint", line)
        return advanced

    async def _advance(
        self, head: Manifest | None, new: Manifest, line: Mapping[str, Any], records: StepRecords | None = None
    ) -> None:
        run = self._run
        timed = {**line, "time": run.platform.now()}
        moved = await run.store.runs.advance(
            run.run,
            fence=run.fence,
            expected=None if head is None else head.model_dump_json().encode(),
            manifest=new.model_dump_json().encode(),
            history=timed,
            records=records,
        )
        if not moved:
            raise RunLost(f"run {run.run} was moved on by another owner")
        await self._trackers.log(timed)

    async def _clean_up(self, head: Manifest) -> None:
        """Delete what no step from the head on needs, while the next one is under way."""
        await self._settle_cleaning()
        self._cleaning = asyncio.create_task(self._clean(head), name=f"clean up to step {head.step}")

    async def _settle_cleaning(self) -> None:
        if self._cleaning is not None:
            await self._cleaning

    async def _clean(self, head: Manifest) -> None:
        run = self._run
        first = max(0, head.step - 1) if self._cleaned_to is None else self._cleaned_to
        self._cleaned_to = first
        try:
            for step in range(first, head.step):
                for number in range(max_rounds(run.config)):
                    await run.store.work.sweep(BatchKey(run=run.run, purpose=Purpose.TRAIN, step=step, round=number))
                self._cleaned_to = step + 1
            await run.blobs.purge(run.run, before_step=head.step, keep=head.kept_blobs())
            await run.store.prefix_kv.purge(run.run, keep={head.policy.digest})
        except (StoreUnavailable, StoreRefused) as error:
            # Nothing waits for it, and the next cleaning takes up what is left.
            log.warning("run %s: could not clean up after step %d: %s", run.run, head.step - 1, error.message)

    async def _ledger(self, purpose: str) -> dict[str, dict[str, Any]]:
        return await self._accountant.close_window(purpose, self._run.client.drain_records())

    async def _num_replicas(self) -> dict[str, int]:
        return {state.name: state.num_ready for state in await self._run.platform.functions()}
