"""Prefill one batch apart: its distinct prompts' KV once, stored by handle, before actors sample from it."""

import asyncio
from dataclasses import dataclass

from controller.runs.context import RunContext
from controller.runs.errors import ContractBroken, StageFailed, StageUnavailable
from controller.runs.segments import MAX_SEGMENTS
from controller.scheduling.prefill_choice import PrefillPlan
from shared.contracts.call import BatchKey, CallKey
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefillOutputs
from shared.contracts.stage import Stage
from shared.service.ending import end_task

PATIENCE_S = 120.0
"""How long actors wait for a prefill at least: a replica may have to start."""
TIMES_EXPECTED = 4.0
"""How many times as long as expected they wait at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """What a prefill made, and how fast: what the next plan chooses by."""

    seconds: float
    """From the first call to the last answer."""
    outputs: tuple[PrefillOutputs, ...] = ()
    """Of each call."""
    failure: str | None = None
    """Why it ended early; the actors then compute what is missing."""

    @property
    def num_handles(self) -> int:
        """Blocks that actors can fetch."""
        return sum(each.num_handles for each in self.outputs)

    @property
    def token_s(self) -> float | None:
        """Seconds per computed token; ``None`` where nothing was computed."""
        tokens = sum(each.computed_tokens for each in self.outputs)
        return sum(each.compute_s for each in self.outputs) / tokens if tokens else None

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """Into the store; ``None`` where nothing was stored."""
        seconds = sum(each.store_s for each in self.outputs)
        stored = sum(each.stored_bytes for each in self.outputs)
        return stored / seconds if stored and seconds > 0 else None

    def metrics(self) -> dict[str, float]:
        """Of the step."""
        totals = {
            name: float(sum(getattr(each, name) for each in self.outputs))
            for name in (
                "num_prefixes",
                "num_prefix_tokens",
                "computed_tokens",
                "num_handles",
                "stored_bytes",
                "num_refused",
                "compute_s",
                "store_s",
            )
        }
        named = {f"prefill/{name}": total for name, total in totals.items()}
        return {**named, "prefill/seconds": self.seconds, "prefill/num_failed": float(self.failure is not None)}


async def prefill_batch(
    run: RunContext, batch: BatchKey, plan: PrefillPlan | None, prompts: BlobRef, policy: PolicyRef
) -> Prefilled | None:
    """Compute and store the batch's prefix KV, if the plan is to prefill apart; ``None`` where it is not.

    A prefill that fails, or takes far longer than expected, fails nobody: actors compute what they do not find. Raises
    ``RunLost`` only.
    """
    if plan is None or not plan.is_apart:
        return None
    began_at = run.platform.now()
    outputs: list[PrefillOutputs] = []
    failure: str | None = None
    patience_s = max(PATIENCE_S, TIMES_EXPECTED * plan.prefill_s)
    working = asyncio.create_task(_prefill(run, batch, prompts, policy, outputs))
    waiting = asyncio.create_task(run.platform.sleep(patience_s))
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            failure = f"it was not done in {patience_s:.0f} s, where {plan.prefill_s:.0f} s were expected"
        else:
            working.result()
    except (ContractBroken, StageFailed, StageUnavailable) as error:
        failure = str(error)
    finally:
        await end_task(waiting)
        await end_task(working)
    if failure is not None:
        await run.emit("prefill", {"step": batch.step, "round": batch.round, "failure": failure})
    return Prefilled(seconds=run.platform.now() - began_at, outputs=tuple(outputs), failure=failure)


async def _prefill(
    run: RunContext, batch: BatchKey, prompts: BlobRef, policy: PolicyRef, outputs: list[PrefillOutputs]
) -> None:
    """As many calls as the deadline cuts the work into, each of whose outputs joins ``outputs``."""
    next_round = 0
    for segment in range(MAX_SEGMENTS):
        reply = await run.client.call(
            CallKey(**batch.model_dump(), stage=Stage.PREFILL, segment=segment),
            PrefillInputs(
                prompts=prompts,
                # What a replica decodes at once it can also hold the prompts of.
                max_num_prefixes=run.config.rollout.max_num_seqs,
                first_round=next_round,
            ),
            PrefillOutputs,
            policy=policy,
            threads=run.resources.num_threads,
            beside=Stage.LEARNER,
        )
        outputs.append(reply.outputs)
        if reply.status == "done":
            return
        if reply.outputs.next_round is None or reply.outputs.next_round <= next_round:
            break
        next_round = reply.outputs.next_round
    raise ContractBroken("prefill asked to be continued and did not get on: swap its image")
