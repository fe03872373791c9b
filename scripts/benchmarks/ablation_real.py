"""Generation steps for real: local platform, Redis, processes of the rollout function with one thread each.

controller: sampling, migration ─▶ local platform ─▶ rollout processes ─▶ torch engine, forced lengths
                                      Redis, blobs in a folder
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from controller.platforms.local.local_settings import ensure_token, local_settings
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.redis_address import redis_address
from controller.runs.context import RunContext
from controller.scheduling.observations import Resources
from controller.scheduling.plan import StepPlan
from controller.settings import ControllerSettings
from scripts.benchmarks.ablation_cases import Scheduled
from scripts.benchmarks.ablation_function import LENGTHS
from scripts.benchmarks.ablation_run import RUN, StepCost, replay_context, replay_step
from scripts.benchmarks.ablation_trace import ReplayRow, ReplayStep
from scripts.benchmarks.make_model import make_model, make_tokenizer
from scripts.local_stack import REPOSITORY
from shared.contracts.policy import BlobRef
from shared.contracts.rollout import WorkItem
from shared.contracts.stage import Stage
from shared.modeling.weights import state_dict_to_blob
from shared.store.opening import open_blobs, redis_store
from shared.store.redis_connection import RedisConnection

MANIFEST = REPOSITORY / "deploy" / "base" / "functions" / "rollout.yaml"
HELD_S = 3600.0
LOOK_S = 0.05
WARM_UP_TOKENS = 8


@dataclass(slots=True)
class RealActors:
    """Rollout processes that are up and have the weights."""

    run: RunContext
    weights: BlobRef
    num_steps: int = 0

    async def replay(self, step: ReplayStep, scheduled: Scheduled) -> StepCost:
        """What the step takes when it is run so. Raises ``ReplayBroken``."""
        self.num_steps += 1
        return await replay_step(self.run, self.num_steps, step, scheduled, self.weights)


@contextlib.asynccontextmanager
async def real_actors(
    folder: Path, num_actors: int, max_num_seqs: int, steps: Sequence[ReplayStep]
) -> AsyncIterator[RealActors]:
    """So many actors of one thread each, for as long as the context is open, that can replay these steps."""
    settings = ControllerSettings.from_environment(
        {"RLHFLESS_STATE_DIR": str(folder / "state"), "RLHFLESS_ROOTS": str(folder), "RLHFLESS_THREADS": "1"}
    )
    settings.state_dir.mkdir()
    warm_up = warm_up_step(num_actors)
    write_manifest(folder, lengths_file(folder, [*steps, warm_up]), num_actors)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    model.config.save_pretrained(folder / "model")
    token_file = settings.state_dir / "token"
    token = ensure_token(token_file)
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(redis_address(settings))
        redis = RedisConnection(address.url, password=address.password)
        stack.push_async_callback(redis.close)
        platform = LocalPlatform(
            replace(
                local_settings(settings, address, token_file),
                manifests_dir=folder / "manifests",
                num_cpus=float(num_actors),
            )
        )
        await stack.enter_async_context(platform)
        blobs = open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes)
        run = replay_context(
            platform,
            redis_store(redis),
            blobs,
            token=token,
            folder=folder / "model",
            max_num_seqs=max_num_seqs,
            resources=Resources(num_threads=1, max_actors=num_actors, shared_threads=False),
        )
        actors = RealActors(run, await blobs.put(RUN, 0, "policy", state_dict_to_blob(model)))
        await platform.scale(Stage.ROLLOUT, num_actors, hold_until=platform.now() + HELD_S)
        while (
            sum(life.ready_at is not None and life.ended_at is None for life in await platform.replicas()) < num_actors
        ):
            await platform.sleep(LOOK_S)
        await actors.replay(warm_up, Scheduled(plan=warm_up_plan(warm_up), migration=None))
        yield actors


def warm_up_step(num_actors: int) -> ReplayStep:
    """One row for each actor, so that each loads the weights."""
    rows = (
        ReplayRow(row_uid=f"warm-up-{number}", num_prompt_tokens=8, lengths=(WARM_UP_TOKENS,) * 4, known_lengths=())
        for number in range(num_actors)
    )
    return ReplayStep(rows=tuple(rows), max_tokens=WARM_UP_TOKENS)


def warm_up_plan(step: ReplayStep) -> StepPlan:
    """Each row to an actor of its own."""
    items = ((WorkItem(row_uid=row.row_uid, samples=tuple(range(step.group_size))),) for row in step.rows)
    return StepPlan(assigned=tuple(items), rollout_threads=1, learner_threads=1)


def lengths_file(folder: Path, steps: Sequence[ReplayStep]) -> Path:
    """The lengths of all rows of all steps, for the functions."""
    lengths: Mapping[str, Sequence[int]] = {row.row_uid: row.lengths for step in steps for row in step.rows}
    if len(lengths) != sum(len(step.rows) for step in steps):
        raise ValueError("rows of two steps have one name")
    path = folder / "lengths.json"
    path.write_text(json.dumps(lengths))
    return path


def write_manifest(folder: Path, lengths: Path, num_actors: int) -> None:
    """The product's manifest of the function, with the command that forces lengths, for one core per replica."""
    manifest = yaml.safe_load(MANIFEST.read_text())
    template = manifest["spec"]["template"]
    template["metadata"]["annotations"]["autoscaling.knative.dev/max-scale"] = str(num_actors)
    [container] = template["spec"]["containers"]
    container["command"] = ["python", "-m", "scripts.benchmarks.ablation_function"]
    container["env"].append({"name": LENGTHS, "value": str(lengths)})
    container["resources"] = {"requests": {"cpu": "1", "memory": "256Mi"}}
    (folder / "manifests").mkdir()
    (folder / "manifests" / MANIFEST.name).write_text(yaml.safe_dump(manifest))
