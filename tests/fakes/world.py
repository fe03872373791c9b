"""A whole run in virtual time: store, blobs, platform, fake stages, and what the run's owner works with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.platforms.base import Platform
from controller.platforms.simulated.clock import virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec, StageFunction
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.runs.config.load import load_config, resolved
from controller.runs.config.run_config import RunConfig
from controller.runs.context import RunContext
from controller.runs.data.dataset import Dataset
from controller.runs.data.sampler import Sampler
from controller.runs.ledger import Price
from controller.runs.loop import RunLoop
from controller.runs.manifest import Manifest
from controller.runs.prepared import Prepared
from controller.runs.stage_client import StageClient
from controller.runs.state import RunState
from controller.scheduling.plan import Resources
from shared.contracts.policy import ModelRef
from shared.contracts.prompt import Prompt
from shared.contracts.stage import Stage
from shared.store.base import RunRecord, Store
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.fakes.stages import TOKEN, FakeStages

RUN = "the-run"
PRICE = Price(cpu_hour_usd=36.0, gpu_hour_usd=360.0)

SPECS = (
    FunctionSpec(name="rollout", stages=(Stage.ROLLOUT,), max_scale=8),
    FunctionSpec(name="reward", stages=(Stage.REWARD,), container_concurrency=4, max_scale=4),
    FunctionSpec(name="reference", stages=(Stage.REFERENCE,), max_scale=4, num_gpus=1),
    FunctionSpec(name="critic", stages=(Stage.CRITIC,), max_scale=1, num_gpus=1),
    FunctionSpec(name="learner", stages=(Stage.LEARNER,), max_scale=1, num_gpus=1),
)


def config_of(**overrides: Any) -> RunConfig:
    """A small run: 3 steps of 4 prompts by 2 completions; overrides by dotted name with ``__`` for the dot."""
    document: dict[str, Any] = {
        "model.path": "/models/tiny",
        "data.train_files": "/data/train.jsonl",
        "data.val_files": "/data/val.jsonl",
        "data.train_batch_size": 4,
        "data.max_response_length": 20,
        "rollout.n": 2,
        "rollout.max_num_seqs": 4,
        "reward.rule": "exact_match",
        "trainer.total_training_steps": 3,
        "trainer.val_before_train": True,
    }
    return load_config(document | {name.replace("__", "."): value for name, value in overrides.items()})


def prompts_of(split: str, count: int) -> tuple[Prompt, ...]:
    """Short prompts with uids like a dataset's."""
    return tuple(
        Prompt(row_uid=f"{split}-{number:06d}", token_ids=(number, 7), text=f"{split} {number}", ground_truth="1")
        for number in range(count)
    )


def prepared_of(config: RunConfig, model_folder: Path, *, num_rows: int = 8, num_heldout: int = 4) -> Prepared:
    """A model and data that were never on a disk."""
    train = Dataset(split="train", prompts=prompts_of("train", num_rows), num_filtered=0, note="train: made up")
    return Prepared(
        config=config,
        model=ModelRef(path=config.model.path),
        model_folder=model_folder,
        eos_token_ids=(99,),
        train=train,
        heldout=prompts_of("val", num_heldout),
        sampler=Sampler(
            num_rows=num_rows,
            batch_size=config.data.train_batch_size,
            seed=config.data_seed,
            shuffle=config.data.shuffle,
        ),
        total_steps=config.total_steps(num_rows),
        notes=(train.note,),
    )


@dataclass
class World:
    """Everything that outlives a controller."""

    root: Path
    """Where the run's model folder and checkpoints lie."""
    config: RunConfig
    store: Store
    blobs: MemoryBlobs
    stages: FakeStages
    platform: SimulatedPlatform
    num_heldout: int = 4
    max_actors: int = 8
    num_threads: int = 2
    shared_threads: bool = True
    call_timeout_s: float = 600.0
    """The platform's limit on one request."""
    lines: list[str] = field(default_factory=list)
    """What stage clients had to say about retries."""

    @property
    def checkpoint_root(self) -> Path:
        """The folder of the run's checkpoints."""
        return self.root / "checkpoints"

    async def context(
        self, *, owner: str = "me", store: Store | None = None, platform: Platform | None = None
    ) -> RunContext:
        """Own the run with a new fence, for no time: anybody may own it next. What it works with may be wrapped."""
        owned = await self.store.runs.acquire(RUN, owner=owner, ttl_s=0)
        assert owned is not None
        used_store, used_platform = store or self.store, platform or self.platform

        async def emit(kind: str, data: Mapping[str, Any]) -> None:
            await used_store.events.append(RUN, kind, data)

        async def notify(line: str) -> None:
            self.lines.append(line)

        return RunContext(
            run=RUN,
            config=self.config,
            prepared=prepared_of(self.config, self.root / "model", num_heldout=self.num_heldout),
            fence=owned.fence,
            store=used_store,
            blobs=self.blobs,
            platform=used_platform,
            client=StageClient(
                used_platform,
                token=TOKEN,
                fence=owned.fence,
                timeout_s=self.call_timeout_s,
                notify=notify,
                trace_id=RUN,
            ),
            resources=Resources(
                num_threads=self.num_threads, max_actors=self.max_actors, shared_threads=self.shared_threads
            ),
            price=PRICE,
            checkpoint_root=self.checkpoint_root,
            emit=emit,
        )

    async def drive(self, **context: Any) -> Manifest:
        """Own the run and drive it to its end."""
        return await RunLoop(await self.context(**context)).drive()

    async def head(self) -> Manifest:
        """Where the run stands."""
        stored = await self.store.runs.head(RUN)
        assert stored is not None, "the run has no head yet"
        return Manifest.model_validate_json(stored)

    async def history(self, kind: str) -> list[Mapping[str, Any]]:
        """The history's lines of one kind."""
        return [line for line in await self.store.runs.history(RUN) if line["kind"] == kind]


async def make_world(
    root: Path,
    *,
    specs: tuple[FunctionSpec, ...] = SPECS,
    wrapped: Mapping[Stage, Any] | None = None,
    num_heldout: int = 4,
    num_threads: int = 2,
    stages: Mapping[str, float] | None = None,
    **overrides: Any,
) -> World:
    """A world with a queued run. ``wrapped`` maps a stage to what makes its function from the fake one."""
    store, blobs = memory_store(virtual_now), MemoryBlobs()
    fakes = FakeStages(store, blobs, **(stages or {}))
    functions: dict[Stage, StageFunction] = fakes.functions()
    for stage, wrap in (wrapped or {}).items():
        functions[stage] = wrap(functions[stage])
    make_model_folder(root / "model")
    config = config_of(**overrides)
    now = virtual_now()
    record = RunRecord(id=RUN, state=RunState.RUNNING, created_at=now, updated_at=now, config=resolved(config), info={})
    await store.runs.create(record, idempotency_key=None, digest="")
    return World(
        root=root,
        config=config,
        store=store,
        blobs=blobs,
        stages=fakes,
        platform=SimulatedPlatform(specs, functions),
        num_heldout=num_heldout,
        num_threads=num_threads,
    )


def make_model_folder(folder: Path) -> None:
    """The files of a model that a checkpoint copies."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')


def without_folders(manifest: Manifest) -> Manifest:
    """The manifest without what depends on where the checkpoints lie."""
    moved = tuple(checkpoint.model_copy(update={"folder": ""}) for checkpoint in manifest.checkpoints)
    return manifest.model_copy(update={"checkpoints": moved})
