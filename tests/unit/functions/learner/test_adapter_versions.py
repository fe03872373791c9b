"""The learner stage with LoRA: versions are adapters of weights that stay."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from functions.learner.app import LearnerHandler
from shared.codec.lora_adapter import LoraAdapter, decode_adapter
from shared.contracts.errors import InvalidInput
from shared.contracts.learner import AdvantagesInputs, AlgorithmConfig, InitInputs, KlPenalty
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Purpose
from shared.contracts.training_pass import TrainingPass
from shared.training.errors import DamagedState
from tests.unit.functions.learner.builders import tiny_model
from tests.unit.functions.learner.test_app import NUM_SAMPLES, World

LORA = LoraConfig(rank=4, alpha=8, seed=3)


class AdapterWorld(World):
    """Its version 0 has an adapter."""

    async def init(self, lora: LoraConfig | None = LORA) -> PolicyRef:
        outcome = await self.call(Purpose.INIT, 0, InitInputs(model=self.model, lora=lora), None)
        return outcome.outputs.policy

    async def adapter(self, policy: PolicyRef) -> LoraAdapter:
        """The adapter of a version."""
        assert policy.adapter is not None
        return decode_adapter(await self.context.blobs.get(policy.adapter))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AdapterWorld]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield await asyncio.to_thread(AdapterWorld, tmp_path, executor)


async def test_version_0_is_the_model_with_an_adapter_that_changes_nothing(world: AdapterWorld) -> None:
    policy = await world.init()
    plain = await world.init(None)
    assert (policy.weights, plain.adapter) == (plain.weights, None)
    assert policy.digest != plain.digest
    adapter = await world.adapter(policy)
    assert (adapter.rank, adapter.alpha, len(adapter.matrices)) == (4, 8.0, 14)
    assert not any(np.any(b) for _, b in adapter.matrices.values())
    assert await world.init() == policy
    assert await world.init(LORA.model_copy(update={"seed": 4})) != policy


async def test_an_update_moves_the_adapter_and_keeps_state_of_nothing_else(world: AdapterWorld) -> None:
    policy = await world.init()
    outputs = (await world.update(policy, None)).outputs
    assert outputs.policy.weights == policy.weights
    assert outputs.policy.adapter != policy.adapter
    assert outputs.policy.digest != policy.digest
    assert all(np.any(b) for _, b in (await world.adapter(outputs.policy)).matrices.values())
    moments = load(await world.context.blobs.get(outputs.state))
    assert len(moments) == 2 * 2 * 14
    assert all(".lora_A." in name or ".lora_B." in name for name in moments)
    weights = await world.weights(outputs.policy)
    assert all(np.array_equal(weights[name], ours.numpy()) for name, ours in tiny_model().state_dict().items())


async def test_a_cold_learner_goes_on_bit_for_bit_where_a_warm_one_would(world: AdapterWorld) -> None:
    first = (await world.update(await world.init(), None)).outputs
    warm = (await world.update(first.policy, first.state, step=1)).outputs
    world.handler = LearnerHandler(world.settings)
    cold = (await world.update(first.policy, first.state, step=1)).outputs
    assert (warm.policy, warm.state) == (cold.policy, cold.state)


async def test_advantages_are_of_the_adapted_policy(world: AdapterWorld) -> None:
    first = (await world.update(await world.init(), None)).outputs
    base = first.policy.model_copy(update={"adapter": None})
    algorithm = AlgorithmConfig(kl_in_reward=KlPenalty(kl_coef=0.5))
    stored = []
    for step, policy in enumerate((first.policy, base), start=1):
        part = await world.part(policy, step=step, values=("reference_logprobs",))
        inputs = AdvantagesInputs(parts=(part,), num_samples=NUM_SAMPLES, temperature=1.0, algorithm=algorithm)
        outcome = await world.call(Purpose.TRAIN, step, inputs, policy)
        stored.append(await world.context.blobs.get(outcome.outputs.advantages))
    assert stored[0] != stored[1]


async def test_state_of_full_training_does_not_fit_an_adapter(world: AdapterWorld) -> None:
    full = (await world.update(await world.init(None), None)).outputs
    with pytest.raises(DamagedState, match="does not fit this model"):
        await world.update(await world.init(), full.state, step=1)


async def test_layers_that_the_model_has_not_are_refused(world: AdapterWorld) -> None:
    with pytest.raises(InvalidInput, match="no_such"):
        await world.init(LORA.model_copy(update={"target_modules": ("no_such",)}))


@pytest.mark.parametrize("lora", [LORA, None])
async def test_recomputed_layers_make_the_same_version(world: AdapterWorld, lora: LoraConfig | None) -> None:
    policy = await world.init(lora)
    versions = [
        (await world.update(policy, None, algorithm=AlgorithmConfig(compute=compute))).outputs.policy
        for compute in (TrainingPass(), TrainingPass(enable_gradient_checkpointing=True))
    ]
    assert versions[0] == versions[1]
