"""The learner stage: from a call by reference to the next policy version."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from functions.learner.app import LearnerHandler
from shared.codec.completions import encode_completion
from shared.codec.token_values import decode_token_values, encode_token_values
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey, CallKey, StageCall
from shared.contracts.completion import Completion, SampleId
from shared.contracts.errors import Cancelled, InvalidInput, MissingBlob, UpdateFailed, WrongPolicy
from shared.contracts.learner import (
    AdvantagesInputs,
    AlgorithmConfig,
    InitInputs,
    KlLoss,
    KlPenalty,
    LearnerInputs,
    LearnerOutputs,
    OptimConfig,
    UpdateInputs,
)
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prompt import Prompt, PromptBatch
from shared.contracts.reward import Score, Scores
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import CallContext, Outcome
from shared.service.settings import FunctionSettings
from shared.service.stop_flag import StopFlag
from shared.service.stopwatch import Stopwatch
from shared.store.memory import memory_store
from shared.store.memory_blobs import MemoryBlobs
from tests.unit.functions.learner.builders import tiny_model

ROWS = ("train-0.e0", "train-1.e0")
NUM_SAMPLES = 2
IDS = [SampleId(row, sample) for row in ROWS for sample in range(NUM_SAMPLES)]
PPO = AlgorithmConfig(
    adv_estimator="gae",
    lam=0.9,
    kl_in_reward=KlPenalty(kl_coef=0.1, controller="adaptive", horizon=100),
    kl_loss=KlLoss(coef=0.05),
)


class World:
    """A store with batches, a model folder, and a learner that may be replaced by a cold one."""

    def __init__(self, folder: Path, executor: ThreadPoolExecutor) -> None:
        tiny_model().save_pretrained(folder / "model")
        (folder / "token").write_text("a-token-of-enough-characters")
        self.model = ModelRef(path=str(folder / "model"))
        self.settings = FunctionSettings.from_environment(
            {
                "RLHFLESS_STAGES": "learner",
                "RLHFLESS_TOKEN_FILE": str(folder / "token"),
                "RLHFLESS_ROOTS": str(folder),
            }
        )
        self.handler = LearnerHandler(self.settings)
        self.stop = StopFlag()
        self.context = CallContext(
            store=memory_store(lambda: 0.0),
            blobs=MemoryBlobs(),
            owner="learner-1/a",
            instance="learner-1",
            deadline_at=time.time() + 60,
            stop=self.stop,
            watch=Stopwatch(),
            executor=executor,
        )

    async def init(self) -> PolicyRef:
        """Version 0."""
        outcome = await self.call(Purpose.INIT, 0, InitInputs(model=self.model), None)
        return outcome.outputs.policy

    async def call(
        self,
        purpose: Purpose,
        step: int,
        operation: InitInputs | AdvantagesInputs | UpdateInputs,
        policy: PolicyRef | None,
    ) -> Outcome[LearnerOutputs]:
        """One call to the current handler."""
        call = StageCall[LearnerInputs](
            key=CallKey(run="run-1", purpose=purpose, step=step, stage=Stage.LEARNER),
            fence=1,
            policy=policy,
            deadline_at=self.context.deadline_at,
            inputs=LearnerInputs(operation=operation),
        )
        return await self.handler.handle(call, self.context)

    async def part(
        self,
        policy: PolicyRef,
        *,
        step: int = 0,
        rewards: Sequence[float | None] = (1.0, 0.0, 0.0, 1.0),
        dropped: Sequence[str] = (),
        num_stored: int = 4,
        values: Sequence[str] = (),
    ) -> BatchPart:
        """A made batch; a reward of ``None`` leaves the score out, ``values`` names stored per-token numbers."""
        batch = BatchKey(run="run-1", purpose=Purpose.TRAIN, step=step)
        blobs = self.context.blobs
        prompts = PromptBatch(
            prompts=tuple(Prompt(row_uid=row, token_ids=(1 + at, 2, 3), text="p") for at, row in enumerate(ROWS))
        )
        completions = [completion(id, at, policy) for at, id in enumerate(IDS)]
        await self.context.store.work.commit_samples(
            batch, fence=1, samples={done.id: encode_completion(done) for done in completions[:num_stored]}
        )
        scores = Scores(
            scores=tuple(
                Score(row_uid=id.row_uid, sample=id.sample, reward=reward)
                for id, reward in zip(IDS, rewards, strict=True)
                if reward is not None
            ),
            dropped_rows=tuple(dropped),
        )
        rng = np.random.default_rng(3)
        numbers = {
            name: {done.id: rng.uniform(-4.0, -2.0, len(done.token_ids)).astype(np.float32) for done in completions}
            for name in values
        }
        return BatchPart(
            prompts=await blobs.put("run-1", step, "prompts", prompts.model_dump_json().encode()),
            row_uids=ROWS,
            scores=(await blobs.put("run-1", step, "scores", scores.model_dump_json().encode()),),
            **{
                name: (await blobs.put("run-1", step, name, encode_token_values({name: vector})),)
                for name, vector in numbers.items()
            },
        )

    async def update(
        self,
        policy: PolicyRef,
        state: BlobRef | None,
        *,
        step: int = 0,
        sampled_by: PolicyRef | None = None,
        algorithm: AlgorithmConfig | None = None,
        part: BatchPart | None = None,
        lr: float = 1e-2,
        **fields: Any,
    ) -> Outcome[LearnerOutputs]:
        """One update on a made batch."""
        batch = {name: fields.pop(name) for name in ("rewards", "dropped", "num_stored", "values") if name in fields}
        inputs = UpdateInputs(
            parts=(part or await self.part(sampled_by or policy, step=step, **batch),),
            num_samples=NUM_SAMPLES,
            state=state,
            temperature=1.0,
            optim=OptimConfig(lr=lr, total_steps=10),
            algorithm=algorithm or AlgorithmConfig(),
            **fields,
        )
        return await self.call(Purpose.TRAIN, step, inputs, policy)

    async def advantages(
        self, policy: PolicyRef, algorithm: AlgorithmConfig, part: BatchPart, **fields: Any
    ) -> Outcome[LearnerOutputs]:
        """The credit of a batch by itself."""
        inputs = AdvantagesInputs(
            parts=(part,), num_samples=NUM_SAMPLES, temperature=1.0, algorithm=algorithm, **fields
        )
        return await self.call(Purpose.TRAIN, 0, inputs, policy)

    async def weights(self, policy: PolicyRef) -> dict[str, Any]:
        """The tensors of a published version."""
        return load(await self.context.blobs.get(policy.weights))


def completion(id: SampleId, seed: int, policy: PolicyRef) -> Completion:
    """A made completion of a few tokens."""
    tokens = np.random.default_rng(seed).integers(0, 20, 3 + seed).astype(np.int32)
    return Completion(
        id=id,
        prompt_num_tokens=3,
        token_ids=tokens,
        rollout_logprobs=np.full(len(tokens), -3.0, dtype=np.float32),
        processed_logprobs=np.full(len(tokens), -3.0, dtype=np.float32),
        loss_mask=np.ones(len(tokens), dtype=np.bool_),
        segments=(0,),
        finish_reason="stop",
        policy_version=policy.version,
        weights_digest=policy.digest,
        instance="rollout-1",
        started_at=1.0,
        ended_at=2.0,
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield await asyncio.to_thread(World, tmp_path, executor)


async def test_version_0_is_the_configured_model(world: World) -> None:
    policy = await world.init()
    assert policy.version == 0
    published, ours = await world.weights(policy), tiny_model().state_dict()
    assert all(np.array_equal(tensor, ours[name].numpy()) for name, tensor in published.items())


async def test_an_update_publishes_the_next_version_and_proves_what_it_started_from(world: World) -> None:
    policy = await world.init()
    outcome = await world.update(policy, None)
    assert (outcome.policy_version, outcome.weights_digest) == (0, policy.digest)
    assert outcome.outputs.policy.version == 1
    assert outcome.outputs.policy.digest != policy.digest
    assert outcome.outputs.num_updates == 1
    assert outcome.metrics["critic/rewards/mean"] == pytest.approx(0.5)


async def test_a_cold_learner_goes_on_bit_for_bit_where_a_warm_one_would(world: World) -> None:
    first = (await world.update(await world.init(), None)).outputs
    warm = (await world.update(first.policy, first.state, step=1)).outputs
    world.handler = LearnerHandler(world.settings)
    cold = (await world.update(first.policy, first.state, step=1)).outputs
    assert (warm.policy.digest, warm.state) == (cold.policy.digest, cold.state)


async def test_a_learner_that_moved_on_reads_the_version_that_a_call_names(world: World) -> None:
    policy = await world.init()
    first = (await world.update(policy, None)).outputs
    await world.update(first.policy, first.state, step=1)
    again = (await world.update(policy, None)).outputs
    assert again.policy.digest == first.policy.digest


async def test_equal_rewards_teach_nothing(world: World) -> None:
    policy = await world.init()
    outcome = await world.update(policy, None, rewards=(1.0,) * 4)
    assert outcome.metrics["critic/advantages/max"] == outcome.metrics["critic/advantages/min"] == 0.0
    assert outcome.metrics["frac_reward_zero_std"] == 1.0


async def test_rows_that_are_said_to_be_flat_are_filtered(world: World) -> None:
    policy = await world.init()
    algorithm = AlgorithmConfig(filter_groups=True)
    outcomes = [
        await world.update(policy, None, algorithm=algorithm, flat_rows=flat, step=step)
        for step, flat in enumerate((None, (), (ROWS[0],), ROWS))
    ]
    assert [outcome.metrics["training/num_filtered_groups"] for outcome in outcomes] == [0.0, 0.0, 1.0, 2.0]
    assert [outcome.outputs.num_updates for outcome in outcomes] == [1, 1, 1, 0]


async def test_a_dropped_group_is_left_out(world: World) -> None:
    policy = await world.init()
    outcome = await world.update(policy, None, rewards=(1.0, 0.0, None, None), dropped=(ROWS[1],))
    assert outcome.metrics["critic/rewards/mean"] == pytest.approx(0.5)
    with pytest.raises(InvalidInput, match="no score"):
        await world.update(policy, None, rewards=(1.0, 0.0, None, None), step=1)


async def test_completions_of_other_weights_are_refused(world: World) -> None:
    policy = await world.init()
    for other in (
        policy.model_copy(update={"version": 7}),
        policy.model_copy(update={"weights": policy.weights.model_copy(update={"sha256": "0" * 64})}),
    ):
        with pytest.raises(WrongPolicy, match="was sampled by version"):
            await world.update(policy, None, sampled_by=other, step=other.version)


async def test_a_missing_completion_is_named(world: World) -> None:
    with pytest.raises(MissingBlob, match=f"1 completions .* {ROWS[1]}:1"):
        await world.update(await world.init(), None, num_stored=3)


async def test_a_failed_update_leaves_nothing_in_the_cache(world: World) -> None:
    policy = await world.init()
    first = (await world.update(policy, None)).outputs
    world.stop.set("the caller is gone")
    with pytest.raises(Cancelled):
        await world.update(first.policy, first.state, step=1)
    world.context = replace(world.context, stop=StopFlag())
    outcome = await world.update(first.policy, first.state, step=1)
    world.handler = LearnerHandler(world.settings)
    assert (
        outcome.outputs.policy.digest == (await world.update(first.policy, first.state, step=1)).outputs.policy.digest
    )


async def test_a_model_outside_the_roots_is_refused(world: World) -> None:
    policy = await world.init()
    with pytest.raises(InvalidInput, match="roots"):
        await world.call(Purpose.INIT, 0, InitInputs(model=ModelRef(path="/etc")), None)
    outside = policy.model_copy(update={"model": ModelRef(path="/etc")})
    with pytest.raises(InvalidInput, match="roots"):
        await world.update(outside, None, sampled_by=policy)


async def test_a_call_without_its_policy_is_refused(world: World) -> None:
    part = await world.part(await world.init())
    inputs = AdvantagesInputs(parts=(part,), num_samples=NUM_SAMPLES, temperature=1.0, algorithm=AlgorithmConfig())
    with pytest.raises(InvalidInput, match="policy"):
        await world.call(Purpose.TRAIN, 0, inputs, None)


async def test_advantages_are_stored_for_the_critic_and_for_the_update(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy, values=("values", "reference_logprobs"))

    outcome = await world.advantages(policy, PPO, part)

    assert (outcome.policy_version, outcome.weights_digest) == (0, policy.digest)
    assert outcome.outputs.policy is None
    assert outcome.outputs.advantages is not None
    assert outcome.outputs.kl_coef not in (None, 0.1)
    assert outcome.metrics["critic/values/mean"] < -2.0
    stored = await world.context.blobs.get(outcome.outputs.advantages)
    vectors = decode_token_values(stored, ["advantages", "returns", "old_logprobs"])
    assert sorted(vectors["returns"]) == IDS
    trained = np.concatenate([vectors["advantages"][id] for id in IDS])
    assert (trained.mean(), trained.std(ddof=1)) == (pytest.approx(0.0, abs=1e-6), pytest.approx(1.0, abs=1e-5))


@pytest.mark.parametrize("algorithm", [PPO, AlgorithmConfig(adv_estimator="rloo")])
async def test_an_update_with_stored_advantages_is_bit_equal_to_one_that_computes_them(
    world: World, algorithm: AlgorithmConfig
) -> None:
    policy = await world.init()
    part = await world.part(policy, values=("values", "reference_logprobs"))
    together = await world.update(policy, None, algorithm=algorithm, part=part, kl_coef=0.2)
    world.handler = LearnerHandler(world.settings)
    credit = await world.advantages(policy, algorithm, part, kl_coef=0.2)

    apart = await world.update(
        policy, None, algorithm=algorithm, part=part, kl_coef=0.2, advantages=credit.outputs.advantages
    )

    assert apart.outputs.policy == together.outputs.policy
    assert credit.outputs.kl_coef == together.outputs.kl_coef
    assert apart.outputs.kl_coef is None
    assert credit.metrics | apart.metrics == together.metrics


async def test_the_coefficient_is_the_calls_or_else_the_algorithms_first(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy, values=("values", "reference_logprobs"))

    metrics = [(await world.advantages(policy, PPO, part, kl_coef=coef)).metrics for coef in (None, 0.1, 0.7)]

    assert [each["actor/reward_kl_penalty_coeff"] for each in metrics] == [0.1, 0.1, 0.7]
    assert metrics[0] == metrics[1] != metrics[2]


@pytest.mark.parametrize(
    ("algorithm", "values", "named"),
    [
        (AlgorithmConfig(adv_estimator="gae"), (), r"parts.values: .* adv_estimator gae"),
        (AlgorithmConfig(kl_in_reward=KlPenalty()), ("values",), r"parts.reference_logprobs: .* kl_in_reward"),
        (AlgorithmConfig(kl_loss=KlLoss()), (), r"parts.reference_logprobs: .* kl_loss"),
    ],
)
async def test_what_an_algorithm_needs_and_lacks_is_refused_by_its_key(
    world: World, algorithm: AlgorithmConfig, values: Sequence[str], named: str
) -> None:
    policy = await world.init()
    with pytest.raises(InvalidInput, match=named) as error:
        await world.update(policy, None, algorithm=algorithm, values=values)
    assert error.value.status == 422


async def test_numbers_of_other_completions_are_refused(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy, values=("values",))
    other = encode_token_values({"values": {SampleId("other", 0): np.zeros(3, np.float32)}})
    part = part.model_copy(update={"values": (await world.context.blobs.put("run-1", 0, "values", other),)})
    with pytest.raises(MissingBlob, match="4 values"):
        await world.advantages(policy, AlgorithmConfig(adv_estimator="gae"), part)


async def test_a_row_of_two_rounds_has_no_stored_advantages(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy)
    inputs = AdvantagesInputs(
        parts=(part, part.model_copy(update={"round": 1})),
        num_samples=NUM_SAMPLES,
        temperature=1.0,
        algorithm=AlgorithmConfig(),
    )
    with pytest.raises(InvalidInput, match="two rounds"):
        await world.call(Purpose.TRAIN, 0, inputs, policy)


async def test_the_advantages_call_loads_the_model_once_for_the_update(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy, values=("values", "reference_logprobs"))
    credit = await world.advantages(policy, PPO, part)
    read: list[str] = []
    get = world.context.blobs.get

    async def counted(ref: BlobRef) -> bytes:
        read.append(ref.id)
        return await get(ref)

    world.context.blobs.get = counted  # type: ignore[method-assign]  # only watched
    await world.update(policy, None, algorithm=PPO, part=part, advantages=credit.outputs.advantages)

    assert policy.weights.id not in read


MANY_UPDATES = AlgorithmConfig(ppo_epochs=2, ppo_mini_batch_size=1, max_token_len=1)
NUM_PASSES = 12
"""Four rows one by one: their old logprobs, then two epochs."""


def late(world: World) -> CallContext:
    """A context of a call whose time is over: a learner that does not know its pace makes one pass all the same."""
    return replace(world.context, deadline_at=time.time() - 1)


@pytest.mark.parametrize("is_cold", [True, False])
async def test_a_step_in_segments_is_bit_equal_to_one_in_a_piece(world: World, is_cold: bool) -> None:
    policy = await world.init()
    part = await world.part(policy)
    whole = await world.update(policy, None, algorithm=MANY_UPDATES, part=part)
    in_time, out_of_time = world.context, late(world)
    outcome, num_segments = None, 0

    while outcome is None or outcome.status == "continue":
        world.handler = LearnerHandler(world.settings) if is_cold or outcome is None else world.handler
        # A warm learner that knows its pace would rather do nothing than be late.
        world.context = out_of_time if is_cold or outcome is None else in_time
        outcome = await world.update(
            policy,
            None,
            algorithm=MANY_UPDATES,
            part=part,
            progress=None if outcome is None else outcome.outputs.progress,
        )
        num_segments += 1
        assert (outcome.policy_version, outcome.weights_digest) == (0, policy.digest)
        assert (outcome.outputs.policy is None) == (outcome.outputs.progress is not None)

    assert num_segments == (NUM_PASSES if is_cold else 2)
    assert outcome.outputs == whole.outputs
    assert outcome.metrics == whole.metrics


async def test_an_update_for_which_no_call_has_the_time_is_refused_and_changes_nothing(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy)
    in_time, world.context = world.context, late(world)
    progress = (await world.update(policy, None, algorithm=MANY_UPDATES, part=part)).outputs.progress

    idle = await world.update(policy, None, algorithm=MANY_UPDATES, part=part, progress=progress)
    assert idle.status == "continue"
    with pytest.raises(UpdateFailed, match=r"smaller actor.ppo_max_token_len_per_gpu, or a longer timeoutSeconds"):
        await world.update(policy, None, algorithm=MANY_UPDATES, part=part, progress=idle.outputs.progress)

    world.context = in_time
    gone_on = await world.update(policy, None, algorithm=MANY_UPDATES, part=part, progress=idle.outputs.progress)
    world.handler = LearnerHandler(world.settings)
    assert gone_on.outputs == (await world.update(policy, None, algorithm=MANY_UPDATES, part=part)).outputs


async def test_progress_that_belongs_elsewhere_is_refused(world: World) -> None:
    policy = await world.init()
    part = await world.part(policy)
    first = (await world.update(policy, None, part=part)).outputs
    in_time, world.context = world.context, late(world)
    world.handler = LearnerHandler(world.settings)
    cut = (await world.update(policy, None, algorithm=MANY_UPDATES, part=part)).outputs
    world.context = in_time

    with pytest.raises(InvalidInput, match="the cut step updates"):
        await world.update(first.policy, first.state, algorithm=MANY_UPDATES, progress=cut.progress, step=1)
    with pytest.raises(InvalidInput, match="is no cut step"):
        await world.update(policy, None, algorithm=MANY_UPDATES, part=part, progress=policy.weights)
    with pytest.raises(InvalidInput, match="another batch"):
        await world.update(policy, None, algorithm=AlgorithmConfig(), dropped=(ROWS[0],), progress=cut.progress, step=2)
