"""A policy that is published in bfloat16: rounded once per version, and never trained on from what was rounded."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from torch import Tensor

from functions.learner import app
from functions.learner.app import LearnerHandler
from shared.codec.lora_adapter import decode_adapter
from shared.codec.token_values import decode_token_values
from shared.contracts.batch import BatchPart
from shared.contracts.call import BatchKey
from shared.contracts.learner import AlgorithmConfig, InitInputs, KlPenalty
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.stage import Purpose
from shared.contracts.training_pass import Precision, TrainingPass
from shared.modeling.errors import WeightsMismatch
from shared.modeling.loading import load_model
from shared.training.errors import DamagedState
from tests.unit.functions.learner.test_app import World

TINY_LR = 1e-9
"""Moves float32 weights, and none across bfloat16's rounding."""


class RoundedWorld(World):
    """Its versions are bfloat16, unless one is asked for otherwise."""

    async def init(self, dtype: Precision = "bfloat16", lora: LoraConfig | None = None) -> PolicyRef:
        outcome = await self.call(Purpose.INIT, 0, InitInputs(model=self.model, lora=lora, dtype=dtype), None)
        return outcome.outputs.policy

    def cold(self) -> None:
        """Another learner takes over: it has what is stored, and nothing else."""
        self.handler = LearnerHandler(self.settings)

    async def part(self, policy: PolicyRef, *, step: int = 0, **fields: Any) -> BatchPart:
        """In place of what another version sampled."""
        await self.context.store.work.sweep(BatchKey(run="run-1", purpose=Purpose.TRAIN, step=step))
        return await super().part(policy, step=step, **fields)

    async def tensors(self, ref: BlobRef) -> dict[str, Tensor]:
        """Of a blob."""
        return load(await self.context.blobs.get(ref))

    async def trained_weights(self, state: BlobRef) -> dict[str, Tensor]:
        """The float32 weights in a state."""
        tensors = await self.tensors(state)
        return {name.removeprefix("weight."): tensor for name, tensor in tensors.items() if name.startswith("weight.")}

    async def versions(self, num: int, *, cold: bool, **fields: Any) -> list[tuple[PolicyRef, BlobRef]]:
        """So many updates from version 0 on, each perhaps by another learner."""
        policy, state, made = await self.init(), None, []
        for step in range(num):
            if cold:
                self.cold()
            outputs = (await self.update(policy, state, step=step, **fields)).outputs
            policy, state = outputs.policy, outputs.state
            made.append((policy, state))
        return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[RoundedWorld]:
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield await asyncio.to_thread(RoundedWorld, tmp_path, executor)


async def test_version_0_is_the_model_rounded_once(world: RoundedWorld) -> None:
    rounded, exact = await world.init(), await world.init("float32")
    assert (rounded.dtype, rounded.is_rounded, exact.dtype, exact.is_rounded) == ("bfloat16", True, "float32", False)
    assert rounded.digest != exact.digest
    model = load_model(world.model.path).state_dict()
    for name, tensor in (await world.tensors(rounded.weights)).items():
        assert torch.equal(tensor, model[name].to(torch.bfloat16))
    for name, tensor in (await world.tensors(exact.weights)).items():
        assert torch.equal(tensor, model[name])


async def test_one_rank_trains_where_it_computes_and_several_bring_their_parts_together_on_the_cpu(
    world: RoundedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "compute_device", lambda: torch.device("meta"))
    for num_ranks, device in ((1, "meta"), (2, "cpu")):
        handler = LearnerHandler(replace(world.settings, num_ranks=num_ranks))
        model = handler._trained._build(world.model.path)
        assert {parameter.device.type for parameter in model.parameters()} == {device}
        assert model.dtype == torch.float32


async def test_a_version_is_the_trained_weights_rounded_once(world: RoundedWorld) -> None:
    for policy, state in await world.versions(2, cold=False):
        assert policy.dtype == "bfloat16"
        published, trained = await world.tensors(policy.weights), await world.trained_weights(state)
        assert published.keys() == trained.keys()
        for name, tensor in trained.items():
            assert tensor.dtype == torch.float32
            assert torch.equal(published[name], tensor.to(torch.bfloat16))
        assert any(not torch.equal(published[name].float(), tensor) for name, tensor in trained.items())


async def test_whoever_goes_on_makes_the_versions_that_one_learner_would(world: RoundedWorld) -> None:
    assert await world.versions(3, cold=True) == await world.versions(3, cold=False)


async def test_what_rounding_hides_is_not_lost(world: RoundedWorld) -> None:
    [(policy, state)] = await world.versions(1, cold=False, lr=TINY_LR)
    first = await world.init()
    assert policy.digest == first.digest
    widened = {name: tensor.float() for name, tensor in (await world.tensors(first.weights)).items()}
    trained = await world.trained_weights(state)
    assert any(not torch.equal(widened[name], tensor) for name, tensor in trained.items())


async def test_weights_that_look_alike_once_rounded_are_not_taken_for_each_other(world: RoundedWorld) -> None:
    """The learner holds version 1 and is asked to make it again: of version 0, whose published weights are the same."""
    made = await world.versions(1, cold=False, lr=TINY_LR)
    for _ in range(2):
        assert await world.versions(1, cold=False, lr=TINY_LR) == made


async def test_the_learners_own_logprobs_are_those_of_what_it_trains(world: RoundedWorld) -> None:
    algorithm = AlgorithmConfig(kl_in_reward=KlPenalty(kl_coef=0.1))
    [(policy, state)] = await world.versions(1, cold=False)
    part = await world.part(policy, values=("reference_logprobs",))

    async def old_logprobs(state: BlobRef | None) -> dict[Any, Any]:
        outputs = (await world.advantages(policy, algorithm, part, state=state)).outputs
        blob = await world.context.blobs.get(outputs.advantages)
        return dict(decode_token_values(blob, ["old_logprobs"])["old_logprobs"])

    warm = await old_logprobs(state)
    published = await old_logprobs(None)
    world.cold()
    for id, values in (await old_logprobs(state)).items():
        np.testing.assert_array_equal(values, warm[id])
        np.testing.assert_allclose(values, published[id], atol=0.1)
    assert any(not np.array_equal(published[id], warm[id]) for id in warm)


async def test_what_passes_compute_in_is_another_matter(world: RoundedWorld) -> None:
    passes = AlgorithmConfig(compute=TrainingPass(dtype="bfloat16"))
    made = await world.versions(2, cold=False, algorithm=passes)
    assert made == await world.versions(2, cold=True, algorithm=passes)
    assert made != await world.versions(2, cold=False)


async def test_an_adapter_is_float32_on_a_rounded_base(world: RoundedWorld) -> None:
    first = policy = await world.init(lora=LoraConfig(rank=4, alpha=8))
    assert {tensor.dtype for tensor in (await world.tensors(policy.weights)).values()} == {torch.bfloat16}
    state = None
    digests: dict[bool, list[str]] = {False: [], True: []}
    for cold, made in digests.items():
        policy, state = first, None
        for step in range(2):
            if cold:
                world.cold()
            outputs = (await world.update(policy, state, step=step)).outputs
            policy, state = outputs.policy, outputs.state
            assert (policy.weights, policy.dtype, policy.is_rounded) == (first.weights, "bfloat16", False)
            made.append(policy.digest)
    assert digests[False] == digests[True]
    assert state is not None
    assert await world.trained_weights(state) == {}
    adapter = decode_adapter(await world.context.blobs.get(policy.adapter))
    assert any(np.any(b != b.astype(np.float16)) for _, b in adapter.matrices.values())


async def test_a_state_of_another_dtype_is_refused(world: RoundedWorld) -> None:
    rounded, exact = await world.init(), await world.init("float32")
    rounded_state = (await world.update(rounded, None)).outputs.state
    exact_state = (await world.update(exact, None)).outputs.state
    assert await world.trained_weights(exact_state) == {}
    with pytest.raises(DamagedState, match=r"missing weight\."):
        await world.update(rounded, exact_state)
    with pytest.raises(DamagedState, match=r"unexpected weight\."):
        await world.update(exact, rounded_state)


async def test_weights_in_another_dtype_than_their_version_says_are_refused(world: RoundedWorld) -> None:
    rounded = await world.init()
    with pytest.raises(WeightsMismatch, match=r"bfloat16 instead of torch\.float32"):
        await world.update(rounded.model_copy(update={"dtype": "float32"}), None)
