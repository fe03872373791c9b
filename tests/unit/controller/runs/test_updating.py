"""The end of a step: policy and critic, and what each is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.errors import ContractBroken
from controller.runs.initial import initial_head
from controller.runs.scoring import flat_rows
from controller.runs.updating import Updated, update_models
from shared.contracts.call import BatchKey
from shared.contracts.critic import CriticOutputs
from shared.contracts.learner import LearnerOutputs
from shared.contracts.policy import BlobRef
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import Outcome
from tests.fakes.sampled import sampled_rounds
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world

PPO = {"algorithm__adv_estimator": "gae"}


async def updated(world: World, state: BlobRef | None = None) -> Updated:
    run = await world.context()
    head = (await initial_head(run)).model_copy(update={"state": state})
    rounds = await sampled_rounds(run, head)
    batch = BatchKey(run=RUN, purpose=Purpose.TRAIN, step=0)
    return await update_models(run, head, batch, rounds.parts, flat_rows=flat_rows(rounds.rewards), threads=2)


def operations(world: World) -> list[tuple[str, str]]:
    """Stage and operation of every call of the step, in the order of their arrival."""
    return [(call.key.stage, call.key.operation) for call in world.stages.calls if call.key.purpose is Purpose.TRAIN]


@in_virtual_time
async def test_without_a_critic_the_update_is_one_call(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    result = await updated(world)
    assert (result.policy.version, result.critic, result.critic_state) == (1, None, None)
    assert [call.inputs.operation.kind for call in world.stages.seen(Stage.LEARNER)] == ["update"]
    [call] = world.stages.seen(Stage.LEARNER)
    assert call.inputs.operation.advantages is None
    assert call.inputs.operation.flat_rows is not None
    assert not world.stages.seen(Stage.CRITIC)


@in_virtual_time
async def test_with_a_critic_both_are_fitted_to_what_the_learner_says_first(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **PPO)
    result = await updated(world)
    assert result.critic is not None
    assert (result.policy.version, result.critic.version) == (1, 1)
    assert result.critic_state is not None
    values, fitting = world.stages.seen(Stage.CRITIC)
    advantages, updating = world.stages.seen(Stage.LEARNER)
    [part] = advantages.inputs.operation.parts
    assert part.values
    assert fitting.inputs.operation.returns == updating.inputs.operation.advantages
    assert fitting.policy == values.policy
    assert (values.policy, advantages.policy) != (advantages.policy, values.policy)
    assert updating.inputs.operation.parts == fitting.inputs.operation.parts == (part,)


@in_virtual_time
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_where_versions_are_rounded_advantages_are_of_the_weights_in_the_learners_state(
    tmp_path: Path, dtype: str
) -> None:
    world = await make_world(tmp_path, rollout__dtype=dtype, **PPO)
    state = await world.blobs.put(RUN, 0, "state", b"state")
    result = await updated(world, state)
    advantages, updating = world.stages.seen(Stage.LEARNER)
    assert advantages.policy.dtype == updating.policy.dtype == result.policy.dtype == dtype
    assert advantages.inputs.operation.state == (state if dtype == "bfloat16" else None)
    assert updating.inputs.operation.state == state


@in_virtual_time
async def test_all_but_the_critic_are_told_the_sampling_temperature(tmp_path: Path) -> None:
    kl = {"actor__use_kl_loss": True, "algorithm__use_kl_in_reward": True}
    asked_of_critics = []
    for temperature in (0.5, 1.0):
        world = await make_world(tmp_path / str(temperature), rollout__temperature=temperature, **PPO, **kl)
        await updated(world)
        rollouts, references = world.stages.seen(Stage.ROLLOUT), world.stages.seen(Stage.REFERENCE)
        told = [
            *(call.inputs.sampling.temperature for call in rollouts),
            *(call.inputs.temperature for call in references),
            *(call.inputs.operation.temperature for call in world.stages.seen(Stage.LEARNER)),
        ]
        assert len(told) >= 4
        assert set(told) == {temperature}
        operations = [call.inputs.operation for call in world.stages.seen(Stage.CRITIC)]
        refs = {"prompts", "parts", "returns"}
        asked_of_critics.append([operation.model_dump(exclude=refs) for operation in operations])
    assert asked_of_critics[0] == asked_of_critics[1]


@in_virtual_time
async def test_with_a_critic_the_kl_controller_moves_and_nothing_that_was_measured_is_lost(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **PPO)
    handle, handle_critic = world.stages.learner.handle, world.stages.critic.handle

    async def measure(call: Any, context: Any) -> Outcome[LearnerOutputs]:
        outcome = await handle(call, context)
        if outcome.outputs.advantages is None:
            return replace(outcome, metrics={"actor/pg_loss": 1.0, "critic/score/mean": 2.0})
        outputs = outcome.outputs.model_copy(update={"kl_coef": 0.25})
        return replace(outcome, outputs=outputs, metrics={"critic/rewards/mean": 3.0, "critic/values/mean": 4.0})

    async def measure_values(call: Any, context: Any) -> Outcome[Any]:
        outcome = await handle_critic(call, context)
        return replace(outcome, metrics={"critic/vf_loss": 5.0, "critic/values/mean": -1.0})

    world.stages.learner.handle = measure  # type: ignore[method-assign]
    world.stages.critic.handle = measure_values  # type: ignore[method-assign]
    result = await updated(world)
    assert result.kl_coef == 0.25
    assert result.metrics == {
        "actor/pg_loss": 1.0,
        "critic/score/mean": 2.0,
        "critic/rewards/mean": 3.0,
        "critic/values/mean": 4.0,
        "critic/vf_loss": 5.0,
    }


@in_virtual_time
@pytest.mark.parametrize(("shared_threads", "at_once"), [(True, False), (False, True)])
async def test_the_updates_run_beside_each_other_unless_they_share_their_cores(
    tmp_path: Path, shared_threads: bool, at_once: bool
) -> None:
    world = await make_world(tmp_path, **PPO)
    world.shared_threads = shared_threads
    await updated(world)
    _, fitting = world.stages.seen(Stage.CRITIC)
    _, updating = world.stages.seen(Stage.LEARNER)
    assert (abs(fitting.at - updating.at) < 0.5) is at_once


@in_virtual_time
@pytest.mark.parametrize("shared_threads", [True, False])
async def test_every_call_has_a_time_of_its_own(tmp_path: Path, shared_threads: bool) -> None:
    """The fake learner takes 2 s for any call, the critic 1.5 s."""
    world = await make_world(tmp_path, **PPO)
    world.shared_threads = shared_threads
    result = await updated(world)
    expected = {"adv": 2.0, "update_critic": 1.5, "update_actor": 2.0}
    assert result.timings_s == pytest.approx(expected, abs=1e-4)
    alone = await updated(await make_world(tmp_path / "alone"))
    assert alone.timings_s.keys() == {"update_actor"}


@in_virtual_time
async def test_a_cut_update_goes_on_from_its_progress(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    handle = world.stages.learner.handle

    async def cut_twice(call: Any, context: Any) -> Outcome[LearnerOutputs]:
        if call.key.purpose is Purpose.TRAIN and call.key.segment < 2:
            progress = await context.blobs.put(RUN, 0, "progress", b"%d" % call.key.segment)
            return Outcome(
                outputs=LearnerOutputs(progress=progress),
                status="continue",
                policy_version=0,
                weights_digest=call.policy.digest,
            )
        return await handle(call, context)

    world.stages.learner.handle = cut_twice  # type: ignore[method-assign]
    assert (await updated(world)).policy.version == 1
    calls = world.stages.seen(Stage.LEARNER)
    assert [call.key.segment for call in calls] == [0, 1, 2]
    progress = [call.inputs.operation.progress for call in calls]
    assert progress[0] is None
    assert [await world.blobs.get(ref) for ref in progress[1:]] == [b"0", b"1"]


@in_virtual_time
async def test_a_cut_value_update_goes_on_from_its_progress(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **PPO)
    handle = world.stages.critic.handle

    async def cut_once(call: Any, context: Any) -> Outcome[CriticOutputs]:
        if call.key.operation == "update" and call.key.segment == 0:
            progress = await context.blobs.put(RUN, 0, "progress", b"half")
            return Outcome(
                outputs=CriticOutputs(progress=progress),
                status="continue",
                policy_version=0,
                weights_digest=call.policy.digest,
            )
        return await handle(call, context)

    world.stages.critic.handle = cut_once  # type: ignore[method-assign]
    critic = (await updated(world)).critic
    assert critic is not None
    assert critic.version == 1
    _, first, second = world.stages.seen(Stage.CRITIC)
    assert (first.key.segment, second.key.segment) == (0, 1)
    assert first.inputs.operation.progress is None
    assert await world.blobs.get(second.inputs.operation.progress) == b"half"


@in_virtual_time
@pytest.mark.parametrize("stage", [Stage.CRITIC, Stage.LEARNER])
async def test_an_answer_without_what_was_asked_for_breaks_the_contract(tmp_path: Path, stage: Stage) -> None:
    world = await make_world(tmp_path, **PPO)
    fake: Any = world.stages.critic if stage is Stage.CRITIC else world.stages.learner

    async def say_nothing(call: Any, context: Any) -> Outcome[Any]:
        outcome: Outcome[Any] = await type(fake).handle(fake, call, context)
        if call.key.purpose is Purpose.TRAIN:
            return Outcome(
                outputs=type(outcome.outputs)(),
                policy_version=outcome.policy_version,
                weights_digest=outcome.weights_digest,
            )
        return outcome

    fake.handle = say_nothing
    with pytest.raises(ContractBroken, match=stage.value):
        await updated(world)
