"""The prefill stage with stored prompts and a tiny model around it."""

import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import PreTrainedModel

from functions.prefill.app import PrefillHandler
from functions.rollout.prefix_cache import FetchReport, PrefixCacheParams, fetch
from functions.rollout.torch_engine.engine import TorchEngine
from shared.contracts.call import CallKey, StageCall
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefillOutputs
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.stage import Purpose, Stage
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext, Outcome
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from shared.store.prefix_kv import PrefixKvStore
from tests.unit.functions.learner.builders import tiny_model

RUN = "run-1"
CONTEXT_TOKENS = 512


def model_of(seed: int = 0) -> PreTrainedModel:
    """A tiny Llama with a context of several blocks."""
    return tiny_model(seed=seed, max_position_embeddings=CONTEXT_TOKENS)


@dataclass(frozen=True, slots=True)
class PrefillWorld:
    """What a handler may reach."""

    folder: Path
    settings: FunctionSettings
    context: CallContext

    def on(self, store: PrefixKvStore) -> "PrefillWorld":
        """The same, with prefix KV kept elsewhere."""
        return replace(
            self, context=replace(self.context, store=replace(self.context.store, prefix_kv=store), watch=Stopwatch())
        )

    async def policy(self, seed: int = 0, adapter: bytes | None = None) -> PolicyRef:
        """A version with random weights."""
        return PolicyRef(
            version=seed,
            model=ModelRef(path=str(self.folder)),
            weights=await self.context.blobs.put(RUN, seed, "policy", state_dict_to_blob(model_of(seed))),
            adapter=None if adapter is None else await self.context.blobs.put(RUN, seed, "adapter", adapter),
        )

    async def prompts(self, token_ids: Sequence[Sequence[int]]) -> BlobRef:
        """A batch of these prompts, rows ``row-0``, ``row-1``, ..."""
        batch = PromptBatch(
            prompts=tuple(
                Prompt(row_uid=f"row-{at}", token_ids=tuple(tokens), text="p") for at, tokens in enumerate(token_ids)
            )
        )
        return await self.context.blobs.put(RUN, 0, "prompts", batch.model_dump_json().encode())

    async def call(
        self, inputs: PrefillInputs, policy: PolicyRef | None, handler: PrefillHandler | None = None
    ) -> Outcome[PrefillOutputs]:
        """One call, by default to a cold replica."""
        call = StageCall[PrefillInputs](
            key=CallKey(run=RUN, purpose=Purpose.TRAIN, step=0, stage=Stage.PREFILL),
            fence=1,
            policy=policy,
            deadline_at=self.context.deadline_at,
            inputs=inputs,
        )
        return await (handler or PrefillHandler(self.settings)).handle(call, self.context)

    async def fetch(
        self, token_ids: Sequence[Sequence[int]], policy: PolicyRef, engine: TorchEngine, timeout_s: float = 60.0
    ) -> FetchReport:
        """What an actor finds of these sequences."""
        params = PrefixCacheParams(run=RUN, model=str(self.folder), timeout_s=timeout_s)
        return await fetch({tuple(tokens) for tokens in token_ids}, engine, policy, self.context, params)


def engine_of(seed: int = 0, dtype: torch.dtype = torch.float32) -> TorchEngine:
    """An actor's engine with the weights of ``PrefillWorld.policy(seed)``."""
    return TorchEngine(model_of(seed).to(dtype))


@asynccontextmanager
async def prefill_world(folder: Path) -> AsyncIterator[PrefillWorld]:
    """A world in memory."""
    model_of().save_pretrained(folder / "model")
    (folder / "token").write_text("a-token-of-enough-characters")
    settings = FunctionSettings.from_environment(
        {
            "RLHFLESS_STAGES": "prefill",
            "RLHFLESS_TOKEN_FILE": str(folder / "token"),
            "RLHFLESS_ROOTS": str(folder),
        }
    )
    with ThreadPoolExecutor(max_workers=1) as executor:
        context = CallContext(
            store=memory_store(lambda: 0.0),
            blobs=MemoryBlobs(),
            owner="prefill-1/a",
            instance="prefill-1",
            deadline_at=time.time() + 60,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )
        yield PrefillWorld(folder / "model", settings, context)
