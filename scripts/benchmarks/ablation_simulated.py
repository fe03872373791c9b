"""A generation step in virtual time, with as many actors as asked for: everything is the real code but the engine.

controller: sampling, migration ─▶ simulated platform ─▶ stage protocol, rollout worker ─▶ paced engine
                                      store and blobs in memory, all clocks virtual
"""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from controller.platforms.base import PlatformReply
from controller.platforms.simulated.clock import run_virtual, spend, virtual_now
from controller.platforms.simulated.function_spec import FunctionSpec, ReplicaView, StageFunction
from controller.platforms.simulated.platform import SimulatedPlatform
from controller.scheduling.decode_profile import DecodeProfile
from controller.scheduling.observations import Resources
from functions.rollout import prefix_cache, worker
from functions.rollout.app import RolloutHandler
from functions.rollout.clock import Clock
from functions.rollout.engine import Engine
from functions.rollout.policy_engine import PolicyEngine
from scripts.benchmarks.ablation_cases import Scheduled
from scripts.benchmarks.ablation_pacing import PacedEngine
from scripts.benchmarks.ablation_run import RUN, StepCost, replay_context, replay_step
from scripts.benchmarks.ablation_trace import ReplayStep
from shared.contracts.call import StageCall
from shared.contracts.errors import StageError
from shared.contracts.rollout import RolloutInputs
from shared.contracts.stage import Stage
from shared.service import handler, protocol, stopwatch
from shared.service.protocol import StageProtocol
from shared.service.replica import Replica
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.store.base import Store
from shared.store.blobs import BlobStore
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs

TOKEN = "the-token-of-the-replay"
HELD_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is simulated: one actor's speed and room, and how many there may be."""

    profile: DecodeProfile
    max_actors: int
    load_s: float = 0.0
    """Of the policy's weights by an actor, at the first call."""

    @property
    def resources(self) -> Resources:
        """As the planner sees them: every actor has its own threads."""
        return Resources(num_threads=1, max_actors=self.max_actors, shared_threads=False)


def replay_simulated(
    step: ReplayStep,
    scheduled: Scheduled,
    cluster: Cluster,
) -> StepCost:
    """What the step takes when it is run so. Raises ``ReplayBroken``. The same arguments give the same seconds."""
    lengths = {(row.row_uid, sample): length for row in step.rows for sample, length in enumerate(row.lengths)}

    def make_engine(model: str, *_: object) -> Engine:
        return PacedEngine(
            cluster.profile, lambda row_uid, sample: lengths[row_uid, sample], spend, load_s=cluster.load_s
        )

    async def replay() -> StepCost:
        store, blobs = memory_store(virtual_now), MemoryBlobs()
        function = rollout_function(store, blobs, make_engine, folder)
        spec = FunctionSpec(name="rollout", stages=(Stage.ROLLOUT,), max_scale=cluster.max_actors)
        platform = SimulatedPlatform([spec], {Stage.ROLLOUT: function})
        run = replay_context(
            platform,
            store,
            blobs,
            token=TOKEN,
            folder=folder,
            max_num_seqs=cluster.profile.max_num_sequences,
            resources=cluster.resources,
        )
        await platform.scale(Stage.ROLLOUT, scheduled.plan.num_actors, hold_until=platform.now() + HELD_S)
        await platform.sleep(spec.cold_start_s)
        return await replay_step(run, 0, step, scheduled, await blobs.put(RUN, 0, "policy", b"none"))

    with tempfile.TemporaryDirectory() as name, virtual_clocks():
        folder = Path(name).resolve()
        (folder / "config.json").write_text("{}")
        return run_virtual(replay())


def rollout_function(
    store: Store, blobs: BlobStore, make_engine: Callable[[str], Engine], folder: Path
) -> StageFunction:
    """The rollout stage as a function of the simulated platform; every replica has its own engine and thread."""
    settings = FunctionSettings.from_environment(
        {"RLHFLESS_STAGES": "rollout", "RLHFLESS_ROOTS": str(folder), "RLHFLESS_TOKEN_FILE": token_file(folder)}
    )
    protocols: dict[str, StageProtocol] = {}

    def serve_on(replica: ReplicaView) -> StageProtocol:
        process = Replica(
            instance=replica.instance,
            revision=replica.revision,
            started_at=replica.started_at,
            ready_at=replica.ready_at,
            store=store,
            blobs=blobs,
            executor=Executor(),
        )
        return StageProtocol(RolloutHandler(settings, PolicyEngine(make_engine)), process)

    async def answer(path: str, body: bytes, headers: Mapping[str, str], replica: ReplicaView) -> PlatformReply:
        if replica.instance not in protocols:
            protocols[replica.instance] = serve_on(replica)
        call = StageCall[RolloutInputs].model_validate_json(body)
        try:
            reply = await protocols[replica.instance].serve(call, StopFlag())
        except StageError as error:
            problem = error.problem().model_dump_json().encode()
            return PlatformReply(status=error.status, headers={}, body=problem)
        return PlatformReply(status=200, headers={}, body=reply)

    return answer


def token_file(folder: Path) -> str:
    """A file with the functions' token."""
    path = folder / "token"
    path.write_text(TOKEN)
    return str(path)


def elapsed() -> float:
    """Virtual seconds since the replay began: finer than Unix time, which has few digits left for them."""
    return asyncio.get_running_loop().time()


VIRTUAL_TIME = SimpleNamespace(time=virtual_now, monotonic=elapsed, perf_counter=elapsed)


@contextlib.contextmanager
def virtual_clocks() -> Iterator[None]:
    """Let the code of the stages read virtual time within the block."""
    with contextlib.ExitStack() as patches:
        for module in (protocol, handler, stopwatch, prefix_cache):
            patches.enter_context(mock.patch.object(module, "time", VIRTUAL_TIME))
        patches.enter_context(mock.patch.object(worker, "Clock", partial(Clock, unix=virtual_now, elapsed=elapsed)))
        yield
