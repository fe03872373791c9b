"""What a step leaves in the head is what the next one is given: nothing is begun anew, nothing is lost."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.runs.initial import initial_head
from controller.runs.manifest import Manifest
from controller.runs.step import run_step
from shared.contracts.learner import LearnerOutputs
from shared.contracts.stage import Stage
from shared.service.handler import Outcome
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import World, make_world

KL = {"algorithm__use_kl_in_reward": True, "algorithm__kl_ctrl__type": "adaptive", "algorithm__kl_ctrl__kl_coef": 0.5}
DYNAMIC = {
    "algorithm__filter_groups__enable": True,
    "algorithm__filter_groups__max_num_gen_batches": 3,
    "data__train_batch_size": 3,
}


def answer_with_kl_coefs(world: World) -> None:
    """Let the learner's KL controller double the coefficient that a call has, where a call computes rewards' KL."""
    handle = world.stages.learner.handle

    async def double(call: Any, context: Any) -> Outcome[LearnerOutputs]:
        outcome = await handle(call, context)
        operation = call.inputs.operation
        coefficient = getattr(operation, "kl_coef", None)
        if coefficient is None or getattr(operation, "advantages", None) is not None:
            return outcome
        outputs = outcome.outputs.model_copy(update={"kl_coef": 2 * coefficient})
        return replace(outcome, outputs=outputs)

    world.stages.learner.handle = double  # type: ignore[method-assign]


async def steps(world: World, count: int) -> list[Manifest]:
    """The heads of the first steps, version 0's first."""
    run = await world.context()
    heads = [await initial_head(run)]
    for _ in range(count):
        heads.append((await run_step(run, heads[-1])).manifest)
    return heads


@in_virtual_time
async def test_the_kl_controllers_coefficient(tmp_path: Path) -> None:
    for estimator in ("grpo", "gae"):
        world = await make_world(tmp_path / estimator, algorithm__adv_estimator=estimator, **KL)
        answer_with_kl_coefs(world)
        heads = await steps(world, 3)
        assert [head.kl_coef for head in heads] == [0.5, 1.0, 2.0, 4.0]
        given = [(call.key.step, call.inputs.operation.kl_coef) for call in world.stages.seen(Stage.LEARNER)]
        assert set(given) == {(0, 0.5), (1, 1.0), (2, 2.0)}


@in_virtual_time
async def test_a_coefficient_that_nobody_moves_stays(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **KL)
    assert [head.kl_coef for head in await steps(world, 2)] == [0.5, 0.5, 0.5]


@in_virtual_time
async def test_the_critic_and_its_optimizer(tmp_path: Path) -> None:
    world = await make_world(tmp_path, algorithm__adv_estimator="gae")
    heads = await steps(world, 2)
    calls = world.stages.seen(Stage.CRITIC)
    fitting = [call for call in calls if call.inputs.operation.kind == "update"]
    assert [call.policy for call in fitting] == [heads[0].critic, heads[1].critic]
    assert [call.inputs.operation.state for call in fitting] == [None, heads[1].critic_state]
    assert heads[1].critic_state is not None
    assert heads[1].critic_state.id in heads[1].kept_blobs()


@in_virtual_time
async def test_rows_that_were_sampled_and_not_needed_come_first(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC)
    [draw] = (await world.context()).prepared.sampler.draws(0, 1)
    flat = f"train-{draw.row:06d}.e{draw.epoch}"
    # Two groups of the first round teach, and of the two of the second round one is needed.
    world.stages.reward.reward_of = lambda completion: float(completion.id.row_uid != flat and completion.id.sample)
    heads = await steps(world, 2)
    assert len(heads[1].leftover_rows) == 1
    drawn = [
        row_uid for call in world.stages.seen(Stage.REWARD) if call.key.step == 1 for row_uid in call.inputs.row_uids
    ]
    assert drawn[: len(heads[1].leftover_rows)] == list(heads[1].leftover_rows)
