"""A tool between turns through real functions, by reference: rollout → reward → learner."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from functions.learner.app import LearnerHandler
from functions.reward.app import RewardHandler
from functions.rollout.app import RolloutHandler
from scripts.examples.calculator.make_model import make_untrained
from shared.codec.completions import decode_completion, encode_completion
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.learner import AlgorithmConfig, LearnerInputs, OptimConfig, RolloutCorrection, UpdateInputs
from shared.contracts.policy import ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import FunctionReward, RewardInputs
from shared.contracts.rollout import MultiTurn, RolloutInputs, Sampling, WorkItem
from shared.contracts.stage import Purpose
from shared.modeling.tokenizer import Tokenizer
from shared.service.handler import CallContext, StageHandler
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs

ROWS = tuple(f"row-{index}" for index in range(4))
NUM_SAMPLES = 8
REWARD = '''
def share_of_results(data_source, solution_str, ground_truth, extra_info=None):
    """Depends on what only the tool writes as a whole."""
    return solution_str.count("<result>error</result>") + solution_str.count("1") / 8
'''

Completions = Mapping[SampleId, Completion]


class World:
    """The three functions on one store, with an untrained model that calls the calculator by chance."""

    def __init__(self, root: Path, executor: ThreadPoolExecutor) -> None:
        torch.manual_seed(0)
        make_untrained(root / "model", hidden_size=32, num_layers=2)
        (root / "reward.py").write_text(REWARD)
        (root / "token").write_text("a-token-of-enough-characters")
        self.root = root
        self.tokenizer = Tokenizer.load(root / "model")
        self.model = ModelRef(path=str(root / "model"))
        self.settings = FunctionSettings.from_environment(
            {"RLHFLESS_STAGES": "rollout", "RLHFLESS_TOKEN_FILE": str(root / "token"), "RLHFLESS_ROOTS": str(root)}
        )
        self.context = CallContext(
            store=memory_store(time.time),
            blobs=MemoryBlobs(),
            owner="worker/attempt",
            instance="worker",
            deadline_at=time.time() + 600,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )
        self.batch = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0)
        prompts = [f"{11 * (1 + row)}*13=" for row in range(len(ROWS))]
        self.prompts = tuple(
            Prompt(row_uid=uid, token_ids=tuple(self.tokenizer.encode(text)), text=text, ground_truth="1")
            for uid, text in zip(ROWS, prompts, strict=True)
        )

    async def handle(self, handler: StageHandler[Any, Any], inputs: Any, policy: PolicyRef | None) -> Any:
        """One call's outcome; the handler is closed."""
        call = StageCall[type(inputs)](
            key=CallKey(**self.batch.model_dump(), stage=handler.stage),
            fence=1,
            policy=policy,
            deadline_at=self.context.deadline_at,
            inputs=inputs,
        )
        try:
            return await handler.handle(call, self.context)
        finally:
            await handler.close()

    async def put(self, kind: str, body: bytes) -> Any:
        return await self.context.blobs.put("run-1", 0, kind, body)

    async def prompts_ref(self) -> Any:
        return await self.put("prompts", PromptBatch(prompts=self.prompts).model_dump_json().encode())

    async def policy(self) -> PolicyRef:
        weights = await self.put("policy", (self.root / "model" / "model.safetensors").read_bytes())
        return PolicyRef(version=0, model=self.model, weights=weights)

    async def sample(self) -> Completions:
        """The rollout function's completions."""
        items = [WorkItem(row_uid=row, samples=tuple(range(NUM_SAMPLES))) for row in ROWS]
        await self.context.store.work.put_items(self.batch, fence=1, assigned=[], offered=items)
        inputs = RolloutInputs(
            prompts=await self.prompts_ref(),
            num_samples=NUM_SAMPLES,
            sampling=Sampling(temperature=1.0, max_tokens=100, eos_token_ids=self.tokenizer.eos_token_ids),
            run_seed=5,
            max_num_sequences=16,
            multi_turn=MultiTurn(tool="calculator", max_turns=3),
        )
        self.outputs = (await self.handle(RolloutHandler(self.settings), inputs, await self.policy())).outputs
        ids = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]
        stored = await self.context.store.work.samples(self.batch, ids)
        return {id: decode_completion(data) for id, data in stored.items()}

    async def trained_on(self, completions: Completions) -> str:
        """Digest of the version that reward and learner make of these completions."""
        await self.context.store.work.sweep(self.batch)
        samples = {id: encode_completion(completion) for id, completion in completions.items()}
        await self.context.store.work.commit_samples(self.batch, fence=1, samples=samples)
        reward = RewardInputs(
            prompts=await self.prompts_ref(),
            row_uids=ROWS,
            num_samples=NUM_SAMPLES,
            model=self.model,
            reward=FunctionReward(path=str(self.root / "reward.py"), name="share_of_results"),
        )
        scored = await self.handle(RewardHandler(self.settings), reward, None)
        self.mean_reward = scored.outputs.mean_reward
        part = BatchPart(prompts=reward.prompts, row_uids=ROWS, scores=(scored.outputs.scores,))
        update = UpdateInputs(
            parts=(part,),
            num_samples=NUM_SAMPLES,
            state=None,
            temperature=1.0,
            optim=OptimConfig(lr=1e-2, total_steps=10),
            # So that what the engine said of sampled tokens has a part in the gradient.
            algorithm=AlgorithmConfig(rollout_correction=RolloutCorrection(threshold=4.0)),
        )
        learned = await self.handle(LearnerHandler(self.settings), LearnerInputs(operation=update), await self.policy())
        self.metrics = learned.metrics
        assert learned.outputs.policy is not None
        return learned.outputs.policy.digest


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield World(tmp_path, executor)


def text(world: World, completion: Completion) -> str:
    return world.tokenizer.decode(completion.token_ids.tolist())


async def test_the_reward_sees_all_turns_and_only_sampled_tokens_are_trained(world: World) -> None:
    completions = await world.sample()
    assert {len(completion.segments) for completion in completions.values()} == {1, 2, 3}
    assert world.outputs.num_turns == sum(len(completion.segments) for completion in completions.values())
    assert world.outputs.num_tool_errors > 0
    for completion in completions.values():
        inserted = world.tokenizer.decode(completion.token_ids[~completion.loss_mask].tolist())
        assert inserted.count("<result>") == len(completion.segments) - 1

    digest = await world.trained_on(completions)
    texts = [text(world, completion) for completion in completions.values()]
    rewards = [whole.count("<result>error</result>") + whole.count("1") / 8 for whole in texts]
    assert world.mean_reward == pytest.approx(sum(rewards) / len(rewards))
    assert world.metrics["training/rollout_logprobs_diff_max"] < 1e-4

    def with_logprobs(value: float, *, at_sampled: bool) -> Completions:
        """Every first or every inserted token's logprobs replaced."""
        changed = {}
        for id, completion in completions.items():
            mask = ~completion.loss_mask
            if at_sampled:
                mask = np.arange(len(mask)) == 0
            changed[id] = replace(
                completion,
                rollout_logprobs=np.where(mask, np.float32(value), completion.rollout_logprobs),
                processed_logprobs=np.where(mask, np.float32(value), completion.processed_logprobs),
            )
        return changed

    for garbage in (-1e6, float("nan"), float("-inf")):
        assert await world.trained_on(with_logprobs(garbage, at_sampled=False)) == digest
    assert await world.trained_on(with_logprobs(-5.0, at_sampled=True)) != digest
