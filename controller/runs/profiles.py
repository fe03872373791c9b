"""How fast replicas decode a model, kept across runs: measured before the first step, learnt from every step since.

One profile is kept for each architecture on each revision and image of the rollout function: another model of the same
shape is as fast, and another image or another machine's manifest is not.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from controller.platforms.base import FunctionState
from controller.platforms.stage_routing import state_of
from controller.runs.config.to_wire import train_sampling
from controller.runs.context import RunContext
from controller.runs.data.position import DataPosition
from controller.runs.errors import ContractBroken, StageFailed, StageUnavailable
from controller.runs.fingerprint import architecture
from controller.runs.manifest import Manifest
from controller.runs.past_steps import MEAN_TOKENS, PER_ANSWER_TOKEN
from controller.runs.prefilling import Prefilled
from controller.runs.sampling import publish_prompts
from controller.scheduling.decode_profile import DecodeObservation, DecodeProfile, fit, prefill_speed, remember
from controller.scheduling.plan import PRIOR, threads_of_actor
from shared.contracts.call import BatchKey, CallKey
from shared.contracts.rollout import Operation, RolloutInputs, RolloutOutputs
from shared.contracts.stage import Purpose, Stage

log = logging.getLogger(__name__)

STAGE_WEIGHT = 0.5
"""Weight of the newest step in what other stages take for a token."""
PROFILE_PROMPTS = 8
"""Prompts that a profile call may take the sizes of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSpeed:
    """What was measured of one model on one revision."""

    threads: int
    """Compute threads of the replicas that were measured."""
    profile: DecodeProfile
    observations: tuple[DecodeObservation, ...] = ()
    """What the profile was fitted to, the latest, older ones weighing less."""
    stage_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the other parts of a step take for each sampled token, by verl's names."""
    bandwidth_bytes_per_s: float | None = None
    """Of prefix KV, into the store or out of it; ``None`` before any was stored."""
    apart_token_s: float | None = None
    """Seconds per token of the function prefill; ``None`` before it was used."""
    mean_tokens: float | None = None
    """Of a completion, in the latest step of a run."""
    per_answer_token: float | None = None
    """Tokens of a completion for each token of its row's ground-truth answer, in that step."""


_SPEED = TypeAdapter(KnownSpeed)


async def read_speed(run: RunContext) -> KnownSpeed | None:
    """What is known of the run's model on the function's revision of now."""
    name = speed_name(await run.platform.functions(), architecture(run.prepared.model_folder))
    return None if name is None else parse_speed(await run.store.records.profile(name))


async def write_speed(run: RunContext, speed: KnownSpeed) -> None:
    """Keep it for this run and later ones."""
    name = speed_name(await run.platform.functions(), architecture(run.prepared.model_folder))
    if name is not None:
        await run.store.records.put_profile(name, format_speed(speed))


def speed_name(functions: Sequence[FunctionState], model: str) -> str | None:
    """The name that speed is kept under; ``None`` without a rollout function."""
    state = state_of(functions, Stage.ROLLOUT)
    if state is None:
        return None
    return hashlib.sha256(f"{model}\n{state.name}\n{state.revision}\n{state.image}".encode()).hexdigest()


def format_speed(speed: KnownSpeed) -> str:
    """As text for the store."""
    return _SPEED.dump_json(speed).decode()


def parse_speed(text: str | None) -> KnownSpeed | None:
    """Inverse of ``format_speed``; ``None`` for what another version wrote: it is measured again."""
    if text is None:
        return None
    try:
        return _SPEED.validate_json(text)
    except ValidationError:
        log.warning("a stored decode profile cannot be read: speed is measured again")
        return None


def learnt(
    known: KnownSpeed | None, outputs: Sequence[RolloutOutputs], *, threads: int, max_num_sequences: int
) -> KnownSpeed | None:
    """``known`` with what these calls of rollout showed; ``None`` where nothing ever was. Pure.

    Replicas with another number of threads are as fast as others: what was known of those is the prior only.
    """
    seen = [DecodeObservation(**stretch.model_dump()) for one in outputs for stretch in one.decode]
    if known is None:
        if not seen:
            return None
        known = KnownSpeed(threads=threads, profile=PRIOR)
    if seen and known.threads != threads:
        known = replace(known, threads=threads, observations=())
    observations = remember(known.observations, seen)
    profile = prefill_speed(
        sum(one.prefill_tokens for one in outputs),
        sum(one.prefill_s for one in outputs),
        fit(observations, known.profile),
    )
    return replace(
        known,
        profile=replace(
            profile,
            max_num_sequences=max_num_sequences,
            kv_capacity_tokens=max((one.kv_capacity_tokens for one in outputs), default=0)
            or known.profile.kv_capacity_tokens,
            kv_bytes_per_token=max((one.kv_bytes_per_token for one in outputs), default=0)
            or known.profile.kv_bytes_per_token,
        ),
        observations=observations,
        bandwidth_bytes_per_s=_rate(sum(one.prefix_bytes for one in outputs), sum(one.prefix_s for one in outputs))
        or known.bandwidth_bytes_per_s,
    )


def with_prefill(speed: KnownSpeed, prefilled: Sequence[Prefilled]) -> KnownSpeed:
    """``speed`` with what the function prefill showed. The way into the store counts where it is the slower one."""
    for one in prefilled:
        rates = [rate for rate in (speed.bandwidth_bytes_per_s, one.bandwidth_bytes_per_s) if rate is not None]
        speed = replace(
            speed,
            apart_token_s=one.token_s if one.token_s is not None else speed.apart_token_s,
            bandwidth_bytes_per_s=min(rates, default=None),
        )
    return speed


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if amount > 0 and seconds > 0 else None


def with_lengths(speed: KnownSpeed, metrics: Mapping[str, float]) -> KnownSpeed:
    """``speed`` with a step's lengths, from its metrics. Pure."""
    return replace(
        speed,
        mean_tokens=metrics.get(MEAN_TOKENS, speed.mean_tokens),
        per_answer_token=metrics.get(PER_ANSWER_TOKEN, speed.per_answer_token),
    )


def with_stages(speed: KnownSpeed, timings_s: Mapping[str, float], num_tokens: int) -> KnownSpeed:
    """``speed`` with what the other parts of a step took for ``num_tokens`` sampled tokens. Pure."""
    if num_tokens <= 0:
        return speed
    new = {name: seconds / num_tokens for name, seconds in timings_s.items() if name not in ("gen", "step")}
    return replace(
        speed,
        stage_s={
            name: STAGE_WEIGHT * value + (1 - STAGE_WEIGHT) * speed.stage_s.get(name, value)
            for name, value in new.items()
        },
    )


async def measure_speed(run: RunContext, head: Manifest) -> None:
    """Have one replica measured, unless its speed is known or makes no difference. A failure only warns."""
    if run.resources.max_actors < 2 or run.config.rollout.num_actors is not None or await read_speed(run) is not None:
        return
    threads = threads_of_actor(run.resources, min(run.resources.max_actors, run.resources.num_threads))
    try:
        outputs = await _profile(run, head, threads)
    except (StageFailed, StageUnavailable, ContractBroken) as error:
        text = f"the speed of rollout was not measured, and is learnt from the first step: {error}"
        await run.emit("log", {"level": "warning", "message": text})
        return
    speed = learnt(None, [outputs], threads=threads, max_num_sequences=run.config.rollout.max_num_seqs)
    if speed is not None:
        await write_speed(run, speed)


async def _profile(run: RunContext, head: Manifest, threads: int) -> RolloutOutputs:
    position = DataPosition(head.data_cursor, head.leftover_rows)
    count = min(PROFILE_PROMPTS, run.config.data.train_batch_size)
    prompts, _ = position.draw(run.prepared.train, run.prepared.sampler, count)
    batch = BatchKey(run=run.run, purpose=Purpose.INIT, step=head.step)
    inputs = RolloutInputs(
        prompts=await publish_prompts(run, batch, prompts),
        num_samples=run.config.rollout.n,
        sampling=train_sampling(run.config, run.prepared.eos_token_ids),
        run_seed=run.config.trainer.seed,
        max_num_sequences=run.config.rollout.max_num_seqs,
    )
    key = CallKey(**batch.model_dump(), stage=Stage.ROLLOUT, operation=Operation.PROFILE)
    reply = await run.client.call(key, inputs, RolloutOutputs, policy=head.policy, threads=threads)
    return reply.outputs
