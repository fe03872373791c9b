"""The critic stage: version 0, values, and the next version."""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from functions.critic.app import CriticHandler
from shared.codec.token_values import TokenValues, decode_token_values, encode_token_values
from shared.contracts.batch import BatchPart
from shared.contracts.completion import Completion, SampleId
from shared.contracts.critic import (
    CriticInit,
    CriticInputs,
    CriticOutputs,
    ValuesInputs,
    ValueUpdateConfig,
    ValueUpdateInputs,
)
from shared.contracts.errors import Cancelled, InvalidInput, MissingBlob, UpdateFailed
from shared.contracts.learner import OptimConfig
from shared.contracts.policy import BlobRef, PolicyRef
from shared.contracts.stage import Purpose, Stage
from shared.contracts.training_pass import TrainingPass
from shared.service.handler import Outcome
from tests.unit.shared.training.stage_world import NUM_SAMPLES, ROWS, GoneAfterOnePass, StageWorld, by_id, stage_world

OPTIM = OptimConfig(lr=1e-2, total_steps=10, weight_decay=0.0)
ONE_BY_ONE = {"ppo_epochs": 2, "ppo_mini_batch_size": 1, "max_token_len": 1}
"""Four updates; a pass for every completion."""


class CriticWorld:
    """A critic, a batch, and the operations on them."""

    def __init__(self, world: StageWorld, prompts: BlobRef, completions: list[Completion]) -> None:
        self.world = world
        self.handler = CriticHandler(world.settings)
        self.prompts = prompts
        self.completions = by_id(completions)

    async def init(self) -> PolicyRef:
        """Version 0."""
        outputs = await self._call(CriticInit(model=self.world.model), None, purpose=Purpose.INIT)
        assert outputs.critic is not None
        return outputs.critic

    async def values(self, critic: PolicyRef, *, step: int = 0) -> BlobRef:
        """Values of the whole batch, which is the same at every step."""
        await self.world.store_batch(step=step)
        inputs = ValuesInputs(prompts=self.prompts, row_uids=ROWS, num_samples=NUM_SAMPLES)
        outputs = await self._call(inputs, critic, step=step)
        assert outputs.values is not None
        return outputs.values

    async def read(self, ref: BlobRef) -> TokenValues:
        """Stored values."""
        return decode_token_values(await self.world.context.blobs.get(ref), ["values"])["values"]

    async def update(
        self,
        critic: PolicyRef,
        state: BlobRef | None,
        returns: dict[SampleId, np.ndarray],
        *,
        step: int = 0,
        optim: OptimConfig = OPTIM,
        **update: Any,
    ) -> CriticOutputs:
        """One value update towards the returns."""
        inputs = await self.update_inputs(critic, state, returns, step=step, optim=optim, **update)
        return await self._call(inputs, critic, step=step)

    async def update_inputs(
        self,
        critic: PolicyRef,
        state: BlobRef | None,
        returns: dict[SampleId, np.ndarray],
        *,
        step: int = 0,
        optim: OptimConfig = OPTIM,
        **update: Any,
    ) -> ValueUpdateInputs:
        """Of such an update."""
        return ValueUpdateInputs(
            parts=(BatchPart(prompts=self.prompts, row_uids=ROWS, values=(await self.values(critic, step=step),)),),
            num_samples=NUM_SAMPLES,
            returns=await self.world.put("returns", encode_token_values({"returns": returns})),
            state=state,
            optim=optim,
            update=ValueUpdateConfig(**{"cliprange_value": None, **update}),
        )

    def constant(self, value: float) -> dict[SampleId, np.ndarray]:
        """The same return at every token."""
        return {id: np.full(len(done.token_ids), value, np.float32) for id, done in self.completions.items()}

    async def _call(self, operation: Any, policy: PolicyRef | None, **options: Any) -> CriticOutputs:
        outputs: CriticOutputs = (await self.call(operation, policy, **options)).outputs
        return outputs

    async def call(
        self,
        operation: Any,
        policy: PolicyRef | None,
        *,
        step: int = 0,
        purpose: Purpose = Purpose.TRAIN,
        is_late: bool = False,
    ) -> Outcome[Any]:
        """One call, whose time may be over."""
        world = self.world
        if is_late:
            world = replace(world, context=replace(world.context, deadline_at=time.time() - 1))
        inputs = CriticInputs(operation=operation)
        return await world.call(self.handler, inputs, policy, step=step, purpose=purpose)


@pytest.fixture
async def critic(tmp_path: Path) -> AsyncIterator[CriticWorld]:
    async with stage_world(tmp_path, Stage.CRITIC) as world:
        yield CriticWorld(world, *await world.store_batch())


async def test_version_0_says_0_of_every_token(critic: CriticWorld) -> None:
    version = await critic.init()
    assert version.version == 0
    values = await critic.read(await critic.values(version))
    assert {id: len(numbers) for id, numbers in values.items()} == {
        id: len(done.token_ids) for id, done in critic.completions.items()
    }
    assert all((numbers == 0).all() for numbers in values.values())


async def test_updates_move_the_values_to_the_returns(critic: CriticWorld) -> None:
    version, state = await critic.init(), None
    for step in range(25):
        outputs = await critic.update(version, state, critic.constant(0.7), step=step)
        assert outputs.critic is not None
        assert outputs.critic.version == version.version + 1
        version, state = outputs.critic, outputs.state
    values = await critic.read(await critic.values(version))
    for id, numbers in values.items():
        assert numbers[critic.completions[id].loss_mask] == pytest.approx(0.7, abs=0.1)
        assert (numbers[~critic.completions[id].loss_mask] == 0).all()


async def test_the_learning_rate_is_that_of_the_step(critic: CriticWorld) -> None:
    version, decaying = await critic.init(), OPTIM.model_copy(update={"lr_scheduler_type": "linear"})
    made = [
        (await critic.update(version, None, critic.constant(0.7), step=step, optim=decaying)).critic for step in (0, 5)
    ]
    far, near = [
        max(float(np.abs(values).max()) for values in (await critic.read(await critic.values(each))).values())
        for each in made
        if each is not None
    ]
    assert near == pytest.approx(far / 2, rel=0.2)


async def test_a_cold_critic_goes_on_bit_for_bit_where_a_warm_one_would(critic: CriticWorld) -> None:
    first = await critic.update(await critic.init(), None, critic.constant(0.7))
    assert first.critic is not None
    warm = await critic.update(first.critic, first.state, critic.constant(-0.2), step=1)
    critic.handler = CriticHandler(critic.world.settings)
    cold = await critic.update(first.critic, first.state, critic.constant(-0.2), step=1)
    assert cold.critic == warm.critic
    assert cold.state == warm.state


@pytest.mark.parametrize("is_cold", [True, False])
async def test_an_update_in_segments_is_bit_equal_to_one_in_a_piece(critic: CriticWorld, is_cold: bool) -> None:
    version = await critic.init()
    first = await critic.update(version, None, critic.constant(0.7))
    assert first.critic is not None
    inputs = await critic.update_inputs(first.critic, first.state, critic.constant(-0.7), **ONE_BY_ONE)
    whole = await critic.call(inputs, first.critic)
    critic.handler = CriticHandler(critic.world.settings)
    outcome, num_segments = None, 0

    while outcome is None or outcome.status == "continue":
        critic.handler = CriticHandler(critic.world.settings) if is_cold else critic.handler
        progress = None if outcome is None else outcome.outputs.progress
        outcome = await critic.call(
            inputs.model_copy(update={"progress": progress}), first.critic, is_late=is_cold or outcome is None
        )
        num_segments += 1
        assert (outcome.policy_version, outcome.weights_digest) == (1, first.critic.digest)
        assert (outcome.outputs.critic is None) == (outcome.outputs.progress is not None)

    assert num_segments == (2 * len(critic.completions) if is_cold else 2)
    assert outcome.outputs == whole.outputs
    assert outcome.metrics == whole.metrics


async def test_an_update_for_which_no_call_has_the_time_is_refused_and_changes_nothing(critic: CriticWorld) -> None:
    version = await critic.init()
    inputs = await critic.update_inputs(version, None, critic.constant(0.7), **ONE_BY_ONE)
    whole = await critic.call(inputs, version)
    critic.handler = CriticHandler(critic.world.settings)
    for _ in range(2):
        cut = await critic.call(inputs, version, is_late=True)
        assert cut.status == "continue"
        inputs = inputs.model_copy(update={"progress": cut.outputs.progress})
    with pytest.raises(UpdateFailed, match=r"smaller critic\.ppo_max_token_len_per_gpu, or a longer timeoutSeconds"):
        await critic.call(inputs, version, is_late=True)

    assert (await critic.call(inputs, version)).outputs == whole.outputs


async def test_an_update_that_nobody_waits_for_ends_and_leaves_nothing_behind(critic: CriticWorld) -> None:
    version, world = await critic.init(), critic.world
    inputs = await critic.update_inputs(version, None, critic.constant(0.7), **ONE_BY_ONE)
    expected = await critic.call(inputs, version)
    stop = GoneAfterOnePass()
    with pytest.raises(Cancelled, match="the caller is gone"):
        await replace(world, context=replace(world.context, stop=stop)).call(
            critic.handler, CriticInputs(operation=inputs), version
        )
    assert stop.num_asked == 2
    assert (await critic.call(inputs, version)).outputs == expected.outputs


async def test_progress_that_belongs_elsewhere_is_refused(critic: CriticWorld) -> None:
    version = await critic.init()
    first = await critic.update(version, None, critic.constant(0.7))
    assert first.critic is not None
    critic.handler = CriticHandler(critic.world.settings)
    inputs = await critic.update_inputs(version, None, critic.constant(0.7), **ONE_BY_ONE)
    critic.handler = CriticHandler(critic.world.settings)
    cut = (await critic.call(inputs, version, is_late=True)).outputs.progress

    with pytest.raises(InvalidInput, match="the cut step updates"):
        await critic.call(inputs.model_copy(update={"progress": cut, "state": first.state}), first.critic)
    with pytest.raises(InvalidInput, match="is no cut step"):
        await critic.call(inputs.model_copy(update={"progress": version.weights}), version)
    fewer = {id: numbers for id, numbers in critic.constant(0.7).items() if id.row_uid == ROWS[0]}
    with pytest.raises(InvalidInput, match="another batch"):
        await critic.call(
            (await critic.update_inputs(version, None, fewer, **ONE_BY_ONE)).model_copy(update={"progress": cut}),
            version,
        )


@pytest.mark.parametrize("max_token_len", [8, 16, 1000])
async def test_how_the_batch_is_cut_changes_nothing(critic: CriticWorld, max_token_len: int) -> None:
    version = await critic.init()
    first = (await critic.update(version, None, critic.constant(0.7))).critic
    assert first is not None
    returns = {
        id: np.linspace(-1, 1, len(done.token_ids)).astype(np.float32) for id, done in critic.completions.items()
    }
    whole = (await critic.update(first, None, returns)).critic
    cut = (await critic.update(first, None, returns, max_token_len=max_token_len)).critic
    assert whole is not None
    assert cut is not None
    expected, actual = await critic.read(await critic.values(whole)), await critic.read(await critic.values(cut))
    for id, numbers in expected.items():
        np.testing.assert_allclose(actual[id], numbers, atol=2e-4)


async def test_how_passes_are_computed_changes_little_or_nothing(critic: CriticWorld) -> None:
    version = (await critic.update(await critic.init(), None, critic.constant(0.7))).critic
    assert version is not None
    plain, recomputed, rounded = [
        (await critic.update(version, None, critic.constant(-0.7), compute=compute)).critic
        for compute in (
            TrainingPass(),
            TrainingPass(enable_gradient_checkpointing=True),
            TrainingPass(dtype="bfloat16"),
        )
    ]
    assert recomputed == plain != rounded
    expected, actual = [await critic.read(await critic.values(made)) for made in (plain, rounded)]
    for id, numbers in expected.items():
        np.testing.assert_allclose(actual[id], numbers, atol=0.1)


async def test_a_row_whose_group_was_left_out_is_not_trained_on(critic: CriticWorld) -> None:
    version = await critic.init()
    returns = {id: numbers for id, numbers in critic.constant(0.7).items() if id.row_uid == ROWS[0]}
    outputs = await critic.update(version, None, returns)
    assert outputs.num_updates == 1


async def test_returns_of_other_rows_and_missing_ones_are_refused(critic: CriticWorld) -> None:
    version = await critic.init()
    with pytest.raises(InvalidInput, match="returns"):
        await critic.update(version, None, {SampleId("train-9.e0", 0): np.zeros(2, np.float32)})
    returns = critic.constant(0.7)
    del returns[SampleId(ROWS[0], 1)]
    with pytest.raises(MissingBlob, match=f"{ROWS[0]}:1"):
        await critic.update(version, None, returns)
    not_finite = critic.constant(0.7) | {SampleId(ROWS[0], 0): np.full(2, np.nan, np.float32)}
    with pytest.raises(InvalidInput, match="not finite"):
        await critic.update(version, None, not_finite)


async def test_values_in_segments_are_bit_equal_to_those_in_a_piece(critic: CriticWorld) -> None:
    made = await critic.update(await critic.init(), None, critic.constant(0.7))
    assert made.critic is not None
    inputs = ValuesInputs(prompts=critic.prompts, row_uids=ROWS, num_samples=NUM_SAMPLES, max_token_len=1)
    whole = await critic.call(inputs, made.critic)
    outcome, num_segments = None, 0
    while outcome is None or outcome.status == "continue":
        # Its time is over, and it does not know its pace: it makes one pass all the same.
        critic.handler = CriticHandler(critic.world.settings)
        partial = None if outcome is None else outcome.outputs.partial
        outcome = await critic.call(inputs.model_copy(update={"partial": partial}), made.critic, is_late=True)
        num_segments += 1
        assert (outcome.outputs.values is None) == (outcome.outputs.partial is not None)

    assert num_segments == len(critic.completions)
    assert outcome.outputs == whole.outputs


async def test_a_call_without_a_version_is_refused(critic: CriticWorld) -> None:
    inputs = ValuesInputs(prompts=critic.prompts, row_uids=ROWS, num_samples=NUM_SAMPLES)
    with pytest.raises(InvalidInput, match="policy"):
        await critic.world.call(critic.handler, CriticInputs(operation=inputs), None)


async def test_values_do_not_know_the_sampling_temperature(critic: CriticWorld) -> None:
    """There is no field for it: the wire cannot carry one."""
    assert "temperature" not in ValuesInputs.model_fields
    assert "temperature" not in ValueUpdateInputs.model_fields | ValueUpdateConfig.model_fields
