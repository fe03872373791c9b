"""A stage handler with stored batches around it, for the stages that run a model over completions."""

import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared.codec.completions import encode_completion
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.stage import Purpose, Stage
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext, Outcome, StageHandler
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.unit.functions.learner.builders import tiny_model

RUN = "run-1"
ROWS = ("train-0.e0", "train-1.e0")
NUM_SAMPLES = 3


class GoneAfterOnePass(StopFlag):
    """Somebody who waits for the first pass only: stops when it is asked for the second time."""

    num_asked = 0

    def is_set(self) -> bool:
        """Whether to stop."""
        self.num_asked += 1
        if self.num_asked > 1:
            self.set("the caller is gone")
        return super().is_set()


@dataclass(frozen=True, slots=True)
class StageWorld:
    """What a handler may reach."""

    model: ModelRef
    settings: FunctionSettings
    context: CallContext

    async def call(
        self,
        handler: StageHandler[Any, Any],
        inputs: Any,
        policy: PolicyRef | None,
        *,
        step: int = 0,
        purpose: Purpose = Purpose.TRAIN,
    ) -> Outcome[Any]:
        """One call to a handler."""
        call = StageCall[type(inputs)](  # type: ignore[misc]  # the handler's own type of inputs
            key=CallKey(run=RUN, purpose=purpose, step=step, stage=handler.stage),
            fence=1,
            policy=policy,
            deadline_at=self.context.deadline_at,
            inputs=inputs,
        )
        return await handler.handle(call, self.context)

    async def store_policy(self, version: int = 0) -> PolicyRef:
        """The model's weights as a version."""
        weights = await self.put("policy", state_dict_to_blob(tiny_model()))
        return PolicyRef(version=version, model=self.model, weights=weights)

    async def store_batch(self, *, step: int = 0, num_stored: int | None = None) -> tuple[BlobRef, list[Completion]]:
        """Prompts and ragged completions of every row; only the first ``num_stored`` completions are stored."""
        prompts = PromptBatch(
            prompts=tuple(Prompt(row_uid=row, token_ids=(1 + at, 2, 3), text="p") for at, row in enumerate(ROWS))
        )
        ids = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]
        completions = [_completion(id, seed) for seed, id in enumerate(ids)]
        await self.context.store.work.commit_samples(
            BatchKey(run=RUN, purpose=Purpose.TRAIN, step=step),
            fence=1,
            samples={done.id: encode_completion(done) for done in completions[:num_stored]},
        )
        return await self.put("prompts", prompts.model_dump_json().encode()), completions

    async def put(self, kind: str, data: bytes) -> BlobRef:
        """Store bytes."""
        return await self.context.blobs.put(RUN, 0, kind, data)


def _completion(id: SampleId, seed: int) -> Completion:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 20, 2 + seed).astype(np.int32)
    mask = rng.random(len(tokens)) < 0.8
    mask[0] = True
    return Completion(
        id=id,
        prompt_num_tokens=3,
        token_ids=tokens,
        rollout_logprobs=np.where(mask, -3.0, 0.0).astype(np.float32),
        processed_logprobs=np.where(mask, -3.0, 0.0).astype(np.float32),
        loss_mask=mask,
        segments=(0,),
        finish_reason="stop",
        policy_version=0,
        weights_digest="0" * 64,
        instance="rollout-1",
        started_at=1.0,
        ended_at=2.0,
    )


@asynccontextmanager
async def stage_world(folder: Path, stage: Stage) -> AsyncIterator[StageWorld]:
    """A world whose model is the tiny one."""
    tiny_model().save_pretrained(folder / "model")
    (folder / "token").write_text("a-token-of-enough-characters")
    settings = FunctionSettings.from_environment(
        {
            "RLHFLESS_STAGES": stage.value,
            "RLHFLESS_TOKEN_FILE": str(folder / "token"),
            "RLHFLESS_ROOTS": str(folder),
        }
    )
    with ThreadPoolExecutor(max_workers=1) as executor:
        context = CallContext(
            store=memory_store(lambda: 0.0),
            blobs=MemoryBlobs(),
            owner=f"{stage.value}-1/a",
            instance=f"{stage.value}-1",
            deadline_at=time.time() + 60,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )
        yield StageWorld(ModelRef(path=str(folder / "model")), settings, context)


def by_id(completions: Sequence[Completion]) -> dict[SampleId, Completion]:
    """Completions by their id."""
    return {completion.id: completion for completion in completions}
