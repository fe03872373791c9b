"""Engine, learner and reference are one policy: the same tokens have the same logprobs, at the same temperature.

Through their handlers on one store, with a model whose config asks for dropout, whose padding is its end token, and
whose folder has sampling parameters that nobody asked for.
"""

import asyncio
import json
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
from functions.reference.app import ReferenceHandler
from functions.rollout.app import RolloutHandler
from shared.codec.completions import decode_completion, encode_completion
from shared.codec.token_values import decode_token_values
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.learner import (
    AlgorithmConfig,
    InitInputs,
    KlLoss,
    KlPenalty,
    LearnerInputs,
    OptimConfig,
    RolloutCorrection,
    UpdateInputs,
)
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reference import ReferenceInputs
from shared.contracts.reward import Score, Scores
from shared.contracts.rollout import RolloutInputs, Sampling, WorkItem
from shared.contracts.stage import Purpose
from shared.contracts.training_pass import DEFAULT_PASS, Precision, TrainingPass
from shared.service.handler import CallContext, Outcome
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.unit.functions.learner.builders import tiny_model

ROWS = ("row-0", "row-1")
NUM_SAMPLES = 8
EOS = 3
BFLOAT16_TOLERANCE = 0.01
"""Of a token's logprob in the mean, three times of what is seen."""
ALGORITHM = AlgorithmConfig(
    kl_in_reward=KlPenalty(kl_coef=0.1),
    kl_loss=KlLoss(coef=0.05),
    rollout_correction=RolloutCorrection(level="token", threshold=4.0),
)


class World:
    """The functions on one store."""

    def __init__(self, root: Path, executor: ThreadPoolExecutor) -> None:
        tiny_model(attention_dropout=0.5, pad_token_id=EOS, eos_token_id=EOS).save_pretrained(root / "model")
        hidden = {"do_sample": True, "temperature": 0.3, "top_k": 2, "repetition_penalty": 1.5, "max_new_tokens": 3}
        (root / "model" / "generation_config.json").write_text(json.dumps(hidden))
        (root / "token").write_text("a-token-of-enough-characters")
        self.settings = FunctionSettings.from_environment(
            {"RLHFLESS_STAGES": "rollout", "RLHFLESS_TOKEN_FILE": str(root / "token"), "RLHFLESS_ROOTS": str(root)}
        )
        self.model = ModelRef(path=str(root / "model"))
        self.context = CallContext(
            store=memory_store(time.time),
            blobs=MemoryBlobs(),
            owner="nobody",
            instance="nobody",
            deadline_at=time.time() + 600,
            stop=StopFlag(),
            watch=Stopwatch(),
            executor=executor,
        )
        self.learner = LearnerHandler(self.settings)

    async def call(
        self,
        handler: Any,
        inputs: Any,
        policy: PolicyRef | None,
        *,
        step: int = 0,
        purpose: Purpose = Purpose.TRAIN,
        replica: int = 0,
    ) -> Outcome[Any]:
        """One call to a replica's handler."""
        call = StageCall[type(inputs)](  # type: ignore[misc]  # the handler's own type of inputs
            key=CallKey(run="run-1", purpose=purpose, step=step, stage=handler.stage, shard=replica),
            fence=1,
            policy=policy,
            deadline_at=self.context.deadline_at,
            inputs=inputs,
        )
        name = f"{handler.stage}-{replica}"
        return await handler.handle(call, replace(self.context, owner=name, instance=name))

    async def init(self, lora: LoraConfig | None = None, dtype: Precision = "float32") -> PolicyRef:
        """Version 0."""
        operation = InitInputs(model=self.model, lora=lora, dtype=dtype)
        outcome = await self.call(self.learner, LearnerInputs(operation=operation), None, purpose=Purpose.INIT)
        policy: PolicyRef = outcome.outputs.policy
        return policy

    async def prompts(self) -> BlobRef:
        batch = PromptBatch(
            prompts=tuple(Prompt(row_uid=row, token_ids=(1 + at, 2, 5), text="p") for at, row in enumerate(ROWS))
        )
        return await self.context.blobs.put("run-1", 0, "prompts", batch.model_dump_json().encode())

    async def sample(
        self, policy: PolicyRef, *, temperature: float, step: int = 0, seed: int = 7, purpose: Purpose = Purpose.TRAIN
    ) -> Mapping[SampleId, Completion]:
        """Completions by two cold replicas, each of which has half of every group."""
        batch = BatchKey(run="run-1", purpose=purpose, step=step)
        halves = (tuple(range(NUM_SAMPLES // 2)), tuple(range(NUM_SAMPLES // 2, NUM_SAMPLES)))
        assigned = [[WorkItem(row_uid=row, samples=half) for row in ROWS] for half in halves]
        await self.context.store.work.put_items(batch, fence=1, assigned=assigned, offered=[])
        inputs = RolloutInputs(
            prompts=await self.prompts(),
            num_samples=NUM_SAMPLES // 2,
            sampling=Sampling(temperature=temperature, max_tokens=24, eos_token_ids=(EOS,)),
            run_seed=seed,
            max_num_sequences=NUM_SAMPLES // 2,
        )
        outcomes = await asyncio.gather(
            *(
                self.call(RolloutHandler(self.settings), inputs, policy, step=step, purpose=purpose, replica=replica)
                for replica in range(len(halves))
            )
        )
        assert {outcome.weights_digest for outcome in outcomes} == {policy.digest}
        ids = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]
        stored = await self.context.store.work.samples(batch, ids)
        assert len(stored) == len(ids)
        return {id: decode_completion(data) for id, data in stored.items()}

    async def reference(
        self, policy: PolicyRef, *, temperature: float, step: int = 0, compute: TrainingPass = DEFAULT_PASS
    ) -> BlobRef:
        """Logprobs of the batch by a cold replica."""
        inputs = ReferenceInputs(
            prompts=await self.prompts(),
            row_uids=ROWS,
            num_samples=NUM_SAMPLES,
            temperature=temperature,
            compute=compute,
        )
        outcome = await self.call(ReferenceHandler(self.settings), inputs, policy, step=step)
        ref: BlobRef = outcome.outputs.logprobs
        return ref

    async def update(
        self,
        policy: PolicyRef,
        reference: BlobRef,
        *,
        temperature: float,
        step: int = 0,
        state: BlobRef | None = None,
        algorithm: AlgorithmConfig = ALGORITHM,
    ) -> Outcome[Any]:
        """The learner's next version: completions with more even tokens are better."""
        ids = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]
        stored = await self.context.store.work.samples(BatchKey(run="run-1", purpose=Purpose.TRAIN, step=step), ids)
        scores = Scores(
            scores=tuple(
                Score(
                    row_uid=id.row_uid, sample=id.sample, reward=float((decode_completion(data).token_ids % 2).mean())
                )
                for id, data in stored.items()
            )
        )
        part = BatchPart(
            prompts=await self.prompts(),
            row_uids=ROWS,
            scores=(await self.context.blobs.put("run-1", 0, "scores", scores.model_dump_json().encode()),),
            reference_logprobs=(reference,),
        )
        operation = UpdateInputs(
            parts=(part,),
            num_samples=NUM_SAMPLES,
            state=state,
            temperature=temperature,
            optim=OptimConfig(lr=1e-2, total_steps=10),
            algorithm=algorithm,
        )
        return await self.call(self.learner, LearnerInputs(operation=operation), policy, step=step)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield World(tmp_path, executor)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4)], ids=["weights", "adapter"])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
async def test_all_say_the_same_of_every_version(world: World, temperature: float, lora: LoraConfig | None) -> None:
    first = policy = await world.init(lora)
    state = None
    for step in range(2):
        completions = await world.sample(policy, temperature=temperature, step=step)
        assert {done.weights_digest for done in completions.values()} == {policy.digest}
        blob = await world.context.blobs.get(await world.reference(policy, temperature=temperature, step=step))
        said = decode_token_values(blob, ["reference_logprobs"])["reference_logprobs"]
        for id, done in completions.items():
            np.testing.assert_allclose(said[id], done.rollout_logprobs, atol=1e-5, rtol=0)
            assert np.array_equal(done.processed_logprobs, done.rollout_logprobs)

        frozen = await world.reference(first, temperature=temperature, step=step)
        made = await world.update(policy, frozen, temperature=temperature, step=step, state=state)

        metrics = made.metrics
        assert metrics["training/rollout_logprobs_diff_max"] < 1e-5
        assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-5)
        for name in ("actor/kl_loss", "actor/reward_kl_penalty"):
            assert abs(metrics[name]) < 1e-6 if step == 0 else abs(metrics[name]) > 1e-5
        policy, state = made.outputs.policy, made.outputs.state


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=2, alpha=4)], ids=["weights", "adapter"])
@pytest.mark.parametrize("passes", ["float32", "bfloat16"])
async def test_in_bfloat16_they_agree_up_to_its_rounding(
    world: World, passes: Precision, lora: LoraConfig | None
) -> None:
    """Version 0 is what all of them have: learner and reference, who compute alike, agree to the bit.

    Later versions are sampled as they are published, and trained as they were before they were rounded.
    """
    compute = TrainingPass(dtype=passes)
    algorithm = ALGORITHM.model_copy(update={"compute": compute})
    first = policy = await world.init(lora, "bfloat16")
    state = None
    for step in range(2):
        completions = await world.sample(policy, temperature=1.0, step=step)
        assert {done.weights_digest for done in completions.values()} == {policy.digest}
        frozen = await world.reference(first, temperature=1.0, step=step, compute=compute)
        made = await world.update(policy, frozen, temperature=1.0, step=step, state=state, algorithm=algorithm)

        metrics = made.metrics
        assert 1e-5 < metrics["training/rollout_logprobs_diff_mean"] < BFLOAT16_TOLERANCE
        assert metrics["training/rollout_logprobs_diff_max"] < 5 * BFLOAT16_TOLERANCE
        assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=BFLOAT16_TOLERANCE)
        for name in ("actor/kl_loss", "actor/reward_kl_penalty"):
            assert metrics[name] == 0 if step == 0 else abs(metrics[name]) > 1e-5
        policy, state = made.outputs.policy, made.outputs.state
        assert policy.dtype == "bfloat16"


async def test_another_temperature_is_seen(world: World) -> None:
    """What the test above would show of a stage that ignored it."""
    policy = await world.init()
    await world.sample(policy, temperature=0.7)
    made = await world.update(policy, await world.reference(policy, temperature=1.0), temperature=0.7)
    assert abs(made.metrics["actor/reward_kl_penalty"]) > 1e-2
    assert made.metrics["training/rollout_logprobs_diff_max"] < 1e-5
    other = await world.update(policy, await world.reference(policy, temperature=1.0), temperature=1.0)
    assert other.metrics["training/rollout_logprobs_diff_max"] > 1e-2


async def test_scoring_twice_gives_equal_bits(world: World) -> None:
    policy = await world.init()
    await world.sample(policy, temperature=1.0)
    first, second = [await world.reference(policy, temperature=1.0) for _ in range(2)]
    assert first.sha256 == second.sha256


async def test_samples_of_two_replicas_differ_and_come_back_on_a_rerun(world: World, tmp_path: Path) -> None:
    policy = await world.init()

    def tokens(completions: Mapping[SampleId, Completion]) -> dict[SampleId, tuple[int, ...]]:
        return {id: tuple(done.token_ids.tolist()) for id, done in completions.items()}

    sampled = await world.sample(policy, temperature=1.0)
    assert {done.instance for done in sampled.values()} == {"rollout-0", "rollout-1"}
    first = tokens(sampled)
    for row in ROWS:
        assert len({first[SampleId(row, sample)] for sample in range(NUM_SAMPLES)}) == NUM_SAMPLES
    rerun = World(tmp_path, world.context.executor)
    assert tokens(await rerun.sample(await rerun.init(), temperature=1.0)) == first
    for change in ({"step": 1}, {"seed": 8}, {"purpose": Purpose.EVAL}):
        fresh = World(tmp_path, world.context.executor)
        other = tokens(await fresh.sample(await fresh.init(), temperature=1.0, **change))  # type: ignore[arg-type]
        assert not set(other.values()) & {value for value in first.values() if len(value) > 4}


async def test_an_end_token_is_trained_also_where_it_is_the_padding(world: World) -> None:
    policy = await world.init()
    completions = await world.sample(policy, temperature=1.0)
    ended = [done for done in completions.values() if done.finish_reason == "stop"]
    assert 0 < len(ended) < len(completions)
    for done in completions.values():
        assert (done.token_ids[-1] == EOS) == (done.finish_reason == "stop")
        assert done.loss_mask.all()
    plain = AlgorithmConfig()
    made = await world.update(policy, await world.reference(policy, temperature=1.0), temperature=1.0, algorithm=plain)
    await world.context.store.work.sweep(BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0))
    unmasked = {
        id: replace(done, loss_mask=done.loss_mask & (done.token_ids != EOS)) for id, done in completions.items()
    }
    await world.context.store.work.commit_samples(
        BatchKey(run="run-1", purpose=Purpose.TRAIN, step=0),
        fence=1,
        samples={id: encode_completion(done) for id, done in unmasked.items()},
    )
    other = await world.update(policy, await world.reference(policy, temperature=1.0), temperature=1.0, algorithm=plain)
    assert made.outputs.policy.digest != other.outputs.policy.digest


async def test_version_0_of_an_adapter_computes_what_the_model_does(world: World) -> None:
    adapted = await world.init(LoraConfig(rank=2, alpha=4))
    bare = adapted.model_copy(update={"adapter": None})
    assert adapted.digest != bare.digest
    await world.sample(adapted, temperature=1.0)
    said = [
        decode_token_values(
            await world.context.blobs.get(await world.reference(policy, temperature=1.0)), ["reference_logprobs"]
        )["reference_logprobs"]
        for policy in (adapted, bare)
    ]
    assert all(torch.equal(torch.from_numpy(said[0][id]), torch.from_numpy(said[1][id])) for id in said[0])
