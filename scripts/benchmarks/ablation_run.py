"""One generation step under a plan: the controller's own code, on whichever platform, and what it took.

    plan ─▶ work items, prompts ─▶ sample_batch: calls, leases, migration ─▶ seconds and replica-seconds

Actors are up before the clock starts, as pre-warming has it. An actor is paid from the first call until its last one
is answered; a static fleet is paid until the step ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.platforms.base import Platform
from controller.runs.config.load import load_config
from controller.runs.context import RunContext
from controller.runs.data.dataset import Dataset
from controller.runs.data.sampler import Sampler
from controller.runs.ledger import Price
from controller.runs.prepared import Prepared
from controller.runs.sampling import publish_prompts, sample_batch
from controller.runs.stage_client import StageClient
from controller.scheduling.observations import Resources
from scripts.benchmarks.ablation_cases import Scheduled
from scripts.benchmarks.ablation_trace import ReplayStep
from shared.codec.completions import decode_completion
from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt
from shared.contracts.rollout import RolloutOutputs, Sampling
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Store
from shared.store.blobs import BlobStore

RUN = "ablation"
VOCAB = 256
"""Token ids of the prompts: every model that is measured has these."""
CALL_TIMEOUT_S = 600.0


class ReplayBroken(RuntimeError):
    """A step did not make the completions that the trace has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one step took."""

    step_s: float
    """From the first call to the last completion."""
    actor_s: tuple[float, ...]
    """From the first call until each actor's last one was answered: when it was free."""
    num_tokens: int
    num_migrated: int
    """Times that an unfinished completion went on at another actor."""
    prefill_tokens: int
    rollouts: tuple[RolloutOutputs, ...]

    @property
    def num_actors(self) -> int:
        """Actors that the step began with."""
        return len(self.actor_s)

    @property
    def replica_s(self) -> float:
        """Held seconds of all actors, each until it was free."""
        return sum(self.actor_s)

    @property
    def fleet_s(self) -> float:
        """Held seconds of all actors, each until the step ended."""
        return self.num_actors * self.step_s


def replay_context(
    platform: Platform,
    store: Store,
    blobs: BlobStore,
    *,
    token: str,
    folder: Path,
    max_num_seqs: int,
    resources: Resources,
) -> RunContext:
    """What the controller's sampling works with: a run that consists of its generation."""
    config = load_config(
        {
            "model.path": str(folder),
            "data.train_files": "trace.jsonl",
            "data.train_batch_size": 1,
            "rollout.n": 2,
            "rollout.max_num_seqs": max_num_seqs,
            "reward.rule": "exact_match",
            "trainer.total_training_steps": 1,
        }
    )

    async def notify(line: str) -> None:
        raise ReplayBroken(f"a call failed: {line}")

    async def emit(kind: str, data: Mapping[str, Any]) -> None:
        """Nobody listens."""

    return RunContext(
        run=RUN,
        config=config,
        prepared=Prepared(
            config=config,
            model=ModelRef(path=str(folder)),
            model_folder=folder,
            eos_token_ids=(),
            train=Dataset(split="train", prompts=(), num_filtered=0, note=""),
            heldout=(),
            sampler=Sampler(num_rows=1, batch_size=1, seed=0, shuffle=False),
            total_steps=1,
            notes=(),
        ),
        fence=0,
        store=store,
        blobs=blobs,
        platform=platform,
        client=StageClient(platform, token=token, fence=0, timeout_s=CALL_TIMEOUT_S, notify=notify, trace_id=RUN),
        resources=resources,
        price=Price(cpu_hour_usd=0.0, gpu_hour_usd=0.0),
        checkpoint_root=folder,
        emit=emit,
    )


async def replay_step(
    run: RunContext, number: int, step: ReplayStep, scheduled: Scheduled, weights: BlobRef
) -> StepCost:
    """Sample the step's completions as step ``number`` of the run. Raises ``ReplayBroken`` where any is missing."""
    plan = scheduled.plan
    batch = BatchKey(run=run.run, purpose=Purpose.TRAIN, step=number)
    prompts = await publish_prompts(run, batch, prompts_of(step))
    policy = PolicyRef(version=0, model=run.prepared.model, weights=weights)
    sampling = Sampling(temperature=1.0, max_tokens=step.max_tokens, eos_token_ids=(), ignore_eos=True)
    run.client.drain_records()
    began_at = run.platform.now()
    rollouts = await sample_batch(run, batch, plan, prompts, policy, sampling, migration=scheduled.migration)
    ended_at = run.platform.now()
    await refuse_other_lengths(run, batch, step)
    left_at = dict.fromkeys(range(plan.num_actors), began_at)
    for record in run.client.drain_records():
        if record.key.stage is Stage.ROLLOUT:
            left_at[record.key.shard] = max(left_at[record.key.shard], record.received_at)
    return StepCost(
        step_s=ended_at - began_at,
        actor_s=tuple(moment - began_at for moment in left_at.values()),
        num_tokens=step.num_tokens,
        num_migrated=sum(output.num_migrated_in for output in rollouts),
        prefill_tokens=sum(output.prefill_tokens for output in rollouts),
        rollouts=tuple(rollouts),
    )


def prompts_of(step: ReplayStep) -> tuple[Prompt, ...]:
    """Prompts of the recorded lengths, no two of which begin alike."""
    return tuple(
        Prompt(
            row_uid=row.row_uid,
            token_ids=tuple((number // VOCAB**place) % VOCAB for place in range(row.num_prompt_tokens)),
            text=row.row_uid,
        )
        for number, row in enumerate(step.rows)
    )


async def refuse_other_lengths(run: RunContext, batch: BatchKey, step: ReplayStep) -> None:
    """Raises ``ReplayBroken`` unless exactly the recorded completions are stored, each with its length."""
    wanted = {SampleId(row.row_uid, sample): length for row in step.rows for sample, length in enumerate(row.lengths)}
    stored = await run.store.work.samples(batch, list(wanted))
    found = {id: len(decode_completion(data).token_ids) for id, data in stored.items()}
    if found != wanted:
        different = [id for id, length in wanted.items() if found.get(id) != length]
        raise ReplayBroken(f"{len(different)} of {len(wanted)} completions are not as recorded, first {different[0]}")
