"""The first head: version 0 of everything that the algorithm has."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.errors import ContractBroken
from controller.runs.initial import initial_head
from shared.contracts.stage import Purpose, Stage
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import make_world


@in_virtual_time
async def test_grpo_has_a_policy_alone(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    head = await initial_head(await world.context())
    assert (head.step, head.data_cursor, head.policy.version, head.run_seed) == (0, 0, 0, 42)
    assert (head.reference, head.critic, head.kl_coef, head.state) == (None, None, None, None)
    assert len(world.stages.seen(Stage.LEARNER, Purpose.INIT)) == 1


@in_virtual_time
@pytest.mark.parametrize("key", ["actor__use_kl_loss", "algorithm__use_kl_in_reward"])
async def test_a_kl_term_freezes_version_0(tmp_path: Path, key: str) -> None:
    coefficient = {"algorithm__kl_ctrl__kl_coef": 0.25} if "reward" in key else {}
    world = await make_world(tmp_path, **{key: True, **coefficient})
    head = await initial_head(await world.context())
    assert head.reference == head.policy
    assert head.kl_coef == (0.25 if "reward" in key else None)


@in_virtual_time
async def test_another_reference_and_critic_are_read_from_their_folders(tmp_path: Path) -> None:
    world = await make_world(
        tmp_path,
        actor__use_kl_loss=True,
        algorithm__adv_estimator="gae",
        reference__model__path="/models/frozen",
        critic__model__path="/models/values",
    )
    head = await initial_head(await world.context())
    assert head.reference is not None
    assert head.critic is not None
    assert head.reference.model.path == "/models/frozen"
    assert (head.critic.model.path, head.critic.version) == ("/models/values", 0)
    calls = world.stages.seen(Stage.LEARNER, Purpose.INIT)
    assert [call.key.operation for call in calls] == ["main", "reference"]


@in_virtual_time
async def test_versions_0_are_in_the_dtype_that_is_asked_for_or_the_learner_is_refused(tmp_path: Path) -> None:
    world = await make_world(tmp_path, rollout__dtype="bfloat16", actor__use_kl_loss=True, reference__model__path="/it")
    head = await initial_head(await world.context())
    assert head.reference is not None
    assert (head.policy.dtype, head.reference.dtype) == ("bfloat16", "bfloat16")
    handle = world.stages.learner.handle

    async def publish_float32(call: Any, context: Any) -> Any:
        outcome = await handle(call, context)
        policy = outcome.outputs.policy.model_copy(update={"dtype": "float32"})
        return replace(outcome, outputs=outcome.outputs.model_copy(update={"policy": policy}))

    other = await make_world(tmp_path / "other", rollout__dtype="bfloat16")
    other.stages.learner.handle = publish_float32  # type: ignore[method-assign]
    with pytest.raises(ContractBroken, match=r"rollout\.dtype"):
        await initial_head(await other.context())


@in_virtual_time
async def test_a_learner_that_makes_no_adapter_is_not_taken_for_one_that_does(tmp_path: Path) -> None:
    world = await make_world(tmp_path, model__lora_rank=8)
    with pytest.raises(ContractBroken, match=r"model\.lora_rank"):
        await initial_head(await world.context())
    [call] = world.stages.seen(Stage.LEARNER, Purpose.INIT)
    assert call.inputs.operation.lora.rank == 8
