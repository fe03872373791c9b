"""Completions with their scores, and the learner's calls on them, as the controller makes them."""

import time
from typing import Any

import numpy as np

from shared.codec.completions import encode_completion
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.learner import AlgorithmConfig, LearnerInputs, OptimConfig, UpdateInputs
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import Score, Scores
from shared.contracts.stage import Purpose, Stage
from shared.store.base import Store
from shared.store.blobs import BlobStore
from tests.contract.batch import MODEL

VERSION = 2
NUM_SAMPLES = 4
VOCAB = 16
FAR_S = 300.0
# Adam's first steps are signs of gradients; with a large eps they are gradients, whose rounding stays small.
OPTIM = OptimConfig(lr=0.1, total_steps=10, eps=1.0)


class LearnerBatch:
    """Ragged groups for the demo's model. The same run has the same batch."""

    def __init__(self, store: Store, blobs: BlobStore, *, run: str, num_rows: int = 6) -> None:
        self.store = store
        self.blobs = blobs
        self.key = BatchKey(run=run, purpose=Purpose.TRAIN, step=VERSION)
        self.rows = tuple(f"row-{index}" for index in range(num_rows))
        self._rng = np.random.default_rng(5)

    async def call(
        self,
        *,
        algorithm: AlgorithmConfig | None = None,
        segment: int = 0,
        progress: BlobRef | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """The body of an update of version 2; the first one stores the batch."""
        if not hasattr(self, "policy"):
            await self._store()
        inputs = UpdateInputs(
            parts=(self._part,),
            num_samples=NUM_SAMPLES,
            state=None,
            temperature=1.0,
            optim=OPTIM,
            algorithm=algorithm or AlgorithmConfig(),
            progress=progress,
        )
        call = StageCall[LearnerInputs](
            key=CallKey(**self.key.model_dump(), stage=Stage.LEARNER, segment=segment),
            fence=0,
            policy=self.policy,
            deadline_at=time.time() + FAR_S,
            inputs=LearnerInputs(operation=inputs),
        )
        return call.model_dump(mode="json") | fields

    async def _store(self) -> None:
        run, step = self.key.run, self.key.step
        weights = await self.blobs.put(run, step, "policy", (MODEL / "model.safetensors").read_bytes())
        self.policy = PolicyRef(version=VERSION, model=ModelRef(path=str(MODEL)), weights=weights)
        ids = [SampleId(row, sample) for row in self.rows for sample in range(NUM_SAMPLES)]
        samples = {id: encode_completion(self._completion(id)) for id in ids}
        await self.store.work.commit_samples(self.key, fence=0, samples=samples)
        prompts = PromptBatch(
            prompts=tuple(Prompt(row_uid=row, token_ids=self._tokens(), text="") for row in self.rows)
        )
        scores = Scores(
            scores=tuple(Score(row_uid=id.row_uid, sample=id.sample, reward=float(self._rng.normal())) for id in ids)
        )
        self._part = BatchPart(
            prompts=await self.blobs.put(run, step, "prompts", prompts.model_dump_json().encode()),
            row_uids=self.rows,
            scores=(await self.blobs.put(run, step, "scores", scores.model_dump_json().encode()),),
        )

    def _completion(self, id: SampleId) -> Completion:
        token_ids = np.array(self._tokens(), dtype=np.int32)
        logprobs = self._rng.uniform(-4, -2, len(token_ids)).astype(np.float32)
        return Completion(
            id=id,
            prompt_num_tokens=1,
            token_ids=token_ids,
            rollout_logprobs=logprobs,
            processed_logprobs=logprobs,
            loss_mask=self._rng.random(len(token_ids)) < 0.9,
            segments=(0,),
            finish_reason="stop",
            policy_version=VERSION,
            weights_digest=self.policy.digest,
            instance="rollout-00001-1",
            started_at=1.0,
            ended_at=2.0,
        )

    def _tokens(self) -> tuple[int, ...]:
        return tuple(self._rng.integers(0, VOCAB, int(self._rng.integers(1, 24))).tolist())
