"""Everything between the REST API and the functions: controllers on one store and one simulated platform."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.platforms.base import Platform
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.runs.manifest import Manifest
from controller.runs.service import RunService
from controller.runs.supervisor import Supervisor
from controller.settings import ControllerSettings
from shared.contracts.stage import Stage
from shared.store.base import RunRecord, Store
from shared.store.blobs import BlobStore
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.fakes.gates import Outage, gated_blobs, gated_store
from tests.fakes.stages import TOKEN, FakeStages
from tests.fakes.world import SPECS


@dataclass
class Controller:
    """One controller's process: its supervisor, driven by a task, and its view of the store."""

    supervisor: Supervisor
    service: RunService
    task: asyncio.Task[None]
    outage: Outage
    """Between this controller alone and the store."""

    async def stop(self) -> None:
        """Tell it to end, as SIGTERM does, and wait until it has."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def kill(self) -> None:
        """End it without its last words."""
        self.outage.is_on = True
        await self.stop()


@dataclass
class Stack:
    """What outlives controllers."""

    root: Path
    settings: ControllerSettings
    store: Store
    blobs: MemoryBlobs
    stages: FakeStages
    platform: SimulatedPlatform
    outage: Outage
    """Between everybody, functions included, and the store."""
    controllers: list[Controller] = field(default_factory=list)

    async def start(self, *, store: Store | None = None, platform: Platform | None = None) -> Controller:
        """Start one more controller. What it works with may be wrapped."""
        outage = Outage()

        def gate(operation: str, done: bool) -> None:
            self.outage(operation, done)
            outage(operation, done)

        own_store, own_blobs = gated_store(store or self.store, gate), gated_blobs(self.blobs, gate)
        used_platform = platform or self.platform
        supervisor = Supervisor(self.settings, own_store, own_blobs, used_platform, token=TOKEN)
        service = RunService(self.settings, own_store, own_blobs, used_platform, supervisor)
        task = asyncio.create_task(supervisor.run_forever())
        controller = Controller(supervisor, service, task, outage)
        self.controllers.append(controller)
        return controller

    async def stop(self) -> None:
        """Stop all controllers."""
        for controller in self.controllers:
            await controller.stop()

    def document(self, **overrides: Any) -> dict[str, Any]:
        """A run's config: 3 steps of 4 prompts by 2 completions; overrides with ``__`` for the dot."""
        document: dict[str, Any] = {
            "model.path": "model",
            "data.train_files": "train.jsonl",
            "data.val_files": "val.jsonl",
            "data.train_batch_size": 4,
            "data.max_response_length": 20,
            "rollout.n": 2,
            "rollout.max_num_seqs": 4,
            "reward.rule": "exact_match",
            "trainer.total_training_steps": 3,
        }
        return document | {name.replace("__", "."): value for name, value in overrides.items()}

    async def submit(self, controller: Controller, **overrides: Any) -> str:
        """Queue a run; its id."""
        record = await controller.service.submit(self.document(**overrides), (), idempotency_key=None)
        return record.id

    async def record(self, run: str) -> RunRecord:
        """The run as stored."""
        record = await self.store.runs.get(run)
        assert record is not None, f"there is no run {run}"
        return record

    async def head(self, run: str) -> Manifest:
        """Where the run stands."""
        stored = await self.store.runs.head(run)
        assert stored is not None, f"{run} has no head"
        return Manifest.model_validate_json(stored)

    async def states(self, run: str) -> list[str]:
        """The states that the run's events tell of, in order."""
        return [event.data["state"] for event in await self.store.events.read(run) if event.kind == "state"]

    async def until(self, run: str, *states: str) -> RunRecord:
        """Wait for the run to be in one of the states."""
        last = "0"
        while (record := await self.record(run)).state not in states:
            events = await self.store.events.read(run, after=last, wait_s=3600)
            if not events and (record := await self.record(run)).state in states:
                # Its last event was lost with the store.
                break
            assert events, f"nothing happens any more: {run} is {record.state}"
            last = events[-1].id
        return record

    async def num_replicas(self) -> int:
        """Replicas that hold resources now."""
        return sum(life.ended_at is None for life in await self.platform.replicas())


async def make_stack(
    root: Path, *, specs: tuple[FunctionSpec, ...] = SPECS, wrapped: Mapping[Stage, Any] | None = None, **stages: float
) -> Stack:
    """A stack without a controller yet. ``wrapped`` maps a stage to what makes its function from the fake one."""
    write_data(root)
    store, blobs, outage = memory_store(virtual_now), MemoryBlobs(), Outage()
    seen_store: Store = gated_store(store, outage)
    seen_blobs: BlobStore = gated_blobs(blobs, outage)
    fakes = FakeStages(seen_store, seen_blobs, **stages)
    functions = fakes.functions()
    for stage, wrap in (wrapped or {}).items():
        functions[stage] = wrap(functions[stage])
    return Stack(
        root=root,
        settings=ControllerSettings.from_environment(
            {"RLHFLESS_STATE_DIR": str(root / "state"), "RLHFLESS_ROOTS": str(root), "RLHFLESS_THREADS": "2"}
        ),
        store=store,
        blobs=blobs,
        stages=fakes,
        platform=SimulatedPlatform(specs, functions),
        outage=outage,
    )


def write_data(root: Path) -> None:
    """A model folder with a tokenizer of words, and rows of them."""
    words = ["<eos>", "<unk>", *(f"w{number}" for number in range(20))]
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {word: id for id, word in enumerate(words)}, "unk_token": "<unk>"},
        "pre_tokenizer": {"type": "Whitespace"},
    }
    model = root / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 64}))
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    for name, count in (("train", 8), ("val", 4)):
        rows = [{"prompt": f"w{number} w{number + 1}", "answer": f"w{number}"} for number in range(count)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
