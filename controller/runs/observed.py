"""What really happened in the sampling rounds of a step: completions without their tokens, calls, replicas' lives."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from controller.platforms.base import ReplicaLife
from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken
from controller.runs.rounds import Rounds, SampledRound
from controller.runs.stage_client import CallRecord
from controller.runs.stage_figures import lives_of
from shared.codec.completion_facts import CompletionFacts, decode_facts
from shared.codec.completions import DamagedCompletion
from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId
from shared.contracts.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRound:
    """One sampling round, as it was planned and as it was."""

    sampled: SampledRound
    completions: tuple[CompletionFacts, ...]
    calls: tuple[CallRecord, ...]
    """Answered calls of its actors."""
    lives: tuple[ReplicaLife, ...]
    """Of rollout's replicas."""


async def observe_rounds(run: RunContext, rounds: Rounds) -> tuple[ObservedRound, ...]:
    """Read what the step's rounds left in the store and on the platform. Raises ``ContractBroken``."""
    lives = lives_of(await run.platform.functions(), Stage.ROLLOUT, await run.platform.replicas())
    observed = []
    for sampled in rounds.sampled:
        batch = sampled.batch
        observed.append(
            ObservedRound(
                sampled=sampled,
                completions=await read_facts(run, batch, sampled.row_uids, num_samples=run.config.rollout.n),
                calls=tuple(
                    call for call in run.client.records if call.key.stage is Stage.ROLLOUT and call.key.batch == batch
                ),
                lives=lives,
            )
        )
    return tuple(observed)


async def read_facts(
    run: RunContext, batch: BatchKey, row_uids: Sequence[str], *, num_samples: int
) -> tuple[CompletionFacts, ...]:
    """Every completion of the batch without its tokens. Raises ``ContractBroken`` for one that cannot be read."""
    ids = [SampleId(row_uid, sample) for row_uid in row_uids for sample in range(num_samples)]
    headers = await run.store.records.completion_headers(batch, ids)
    try:
        return await asyncio.to_thread(lambda: tuple(decode_facts(header) for header in headers.values()))
    except DamagedCompletion as error:
        raise ContractBroken(f"rollout stored a completion that cannot be read: {error}. Swap its image") from error
