"""A batch of additions for the demo's model: prompts, completions and calls, as the controller makes them."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from shared.codec.completions import encode_completion
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import RewardInputs, RuleReward
from shared.contracts.rollout import RolloutInputs, Sampling, WorkItem
from shared.contracts.rollout_mail import MailKind, RolloutMail
from shared.contracts.stage import Purpose, Stage
from shared.modeling.tokenizer import Tokenizer
from shared.store.base import Store
from shared.store.blobs import BlobStore

MODEL = Path(__file__).resolve().parents[2] / "scripts/demo/model"
POLICY_VERSION = 3
RUN_SEED = 17
FAR_S = 300.0


class Batch:
    """``num_rows`` additions with ``num_samples`` completions each, of one run and step."""

    def __init__(self, store: Store, blobs: BlobStore, *, run: str, num_rows: int = 4, num_samples: int = 2) -> None:
        self.store = store
        self.blobs = blobs
        self.key = BatchKey(run=run, purpose=Purpose.TRAIN, step=POLICY_VERSION)
        self.num_samples = num_samples
        self.tokenizer = Tokenizer.load(MODEL)
        self.texts = {f"row-{index}": f"{100 + index}+{200 + index}:" for index in range(num_rows)}
        self.ids = [SampleId(row, sample) for row in self.texts for sample in range(num_samples)]

    def prompts(self) -> tuple[Prompt, ...]:
        return tuple(
            Prompt(
                row_uid=row,
                token_ids=tuple(self.tokenizer.encode(text)),
                text=text,
                ground_truth=str(300 + 2 * index),
            )
            for index, (row, text) in enumerate(self.texts.items())
        )

    async def queue(self) -> None:
        """Offer all items to every worker."""
        items = [WorkItem(row_uid=row, samples=tuple(range(self.num_samples))) for row in self.texts]
        await self.store.work.put_items(self.key, fence=0, assigned=[], offered=items)

    async def tell(self, kind: MailKind, *, shard: int | None = None, **mail: Any) -> None:
        """Post a message to one worker, or to all."""
        message = RolloutMail(**{"kind": kind, "fence": 0, **mail})
        await self.store.work.post(self.key, shard=shard, message=message.model_dump_json())

    async def commit(self, texts: dict[SampleId, str]) -> None:
        """Store completions as a rollout would."""
        samples = {id: encode_completion(self._completion(id, text)) for id, text in texts.items()}
        await self.store.work.commit_samples(self.key, fence=0, samples=samples)

    async def reward_call(self, **fields: Any) -> dict[str, Any]:
        """The body of a reward call on all rows."""
        inputs = RewardInputs(
            prompts=await self._prompts_ref(),
            row_uids=tuple(self.texts),
            num_samples=self.num_samples,
            model=ModelRef(path=str(MODEL)),
            reward=fields.pop("reward", RuleReward(name="exact_number")),
        )
        return self._body(Stage.REWARD, inputs, None, fields)

    async def rollout_call(
        self,
        *,
        shard: int = 0,
        segment: int = 0,
        max_num_sequences: int = 64,
        sampling: Sampling | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """The body of one worker call."""
        weights = await self.blobs.put(
            self.key.run, POLICY_VERSION, "policy", (MODEL / "model.safetensors").read_bytes()
        )
        inputs = RolloutInputs(
            prompts=await self._prompts_ref(),
            num_samples=self.num_samples,
            sampling=sampling or Sampling(temperature=1.0, max_tokens=40, eos_token_ids=self.tokenizer.eos_token_ids),
            run_seed=RUN_SEED,
            max_num_sequences=max_num_sequences,
        )
        policy = PolicyRef(version=POLICY_VERSION, model=ModelRef(path=str(MODEL)), weights=weights)
        return self._body(Stage.ROLLOUT, inputs, policy, {"shard": shard, "segment": segment, **fields})

    async def _prompts_ref(self) -> Any:
        data = PromptBatch(prompts=self.prompts()).model_dump_json().encode()
        return await self.blobs.put(self.key.run, self.key.step, "prompts", data)

    def _body(self, stage: Stage, inputs: Any, policy: PolicyRef | None, fields: dict[str, Any]) -> dict[str, Any]:
        place = {name: fields.pop(name) for name in ("shard", "segment") if name in fields}
        call = StageCall[type(inputs)](
            **{
                "key": CallKey(**self.key.model_dump(), stage=stage, **place),
                "fence": 0,
                "policy": policy,
                "deadline_at": time.time() + FAR_S,
                "inputs": inputs,
                **fields,
            }
        )
        return call.model_dump(mode="json")

    def _completion(self, id: SampleId, text: str) -> Completion:
        token_ids = np.array(self.tokenizer.encode(text), dtype=np.int32)
        return Completion(
            id=id,
            prompt_num_tokens=len(self.texts[id.row_uid]),
            token_ids=token_ids,
            rollout_logprobs=np.zeros(len(token_ids), dtype=np.float32),
            processed_logprobs=np.zeros(len(token_ids), dtype=np.float32),
            loss_mask=np.ones(len(token_ids), dtype=np.bool_),
            segments=(0,),
            finish_reason="stop",
            policy_version=POLICY_VERSION,
            weights_digest="ab" * 32,
            instance="rollout-00001-1",
            started_at=1.0,
            ended_at=2.0,
        )
