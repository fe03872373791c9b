"""A call that is cut goes on from where it stopped."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs import segments
from controller.runs.errors import ContractBroken
from controller.runs.initial import initial_head
from controller.runs.manifest import Manifest
from controller.runs.rounds import Rounds
from shared.contracts.critic import CriticOutputs
from shared.contracts.reference import ReferenceOutputs
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import Outcome
from tests.fakes.sampled import sampled_rounds
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world

ALL = {"algorithm__adv_estimator": "gae", "actor__use_kl_loss": True}
JUDGES = {Stage.REFERENCE: ReferenceOutputs, Stage.CRITIC: CriticOutputs}


def cut(world: World, stage: Stage, *, times: int, says_where: bool = True) -> None:
    """Let the stage answer its first calls of a batch with how far it came."""
    fake: Any = world.stages.reference if stage is Stage.REFERENCE else world.stages.critic
    handle = fake.handle

    async def answer(call: Any, context: Any) -> Outcome[Any]:
        if call.key.purpose is not Purpose.TRAIN or call.key.segment >= times:
            return await handle(call, context)
        place = await context.blobs.put(RUN, 0, "partial", b"%d" % call.key.segment) if says_where else None
        return Outcome(
            outputs=JUDGES[stage](partial=place),
            status="continue",
            policy_version=call.policy.version,
            weights_digest=call.policy.digest,
        )

    fake.handle = answer


async def judged(world: World) -> tuple[Manifest, Rounds]:
    run = await world.context()
    head = await initial_head(run)
    return head, await sampled_rounds(run, head)


@in_virtual_time
@pytest.mark.parametrize("stage", JUDGES)
async def test_a_cut_judge_goes_on_from_where_it_stopped_to_the_same_end(tmp_path: Path, stage: Stage) -> None:
    whole = await make_world(tmp_path / "whole", **ALL)
    _, expected = await judged(whole)
    world = await make_world(tmp_path / "cut", **ALL)
    cut(world, stage, times=2)
    _, rounds = await judged(world)
    calls = world.stages.seen(stage)
    assert [(call.key.shard, call.key.segment) for call in calls] == [(0, 0), (0, 1), (0, 2)]
    inputs = [getattr(call.inputs, "operation", call.inputs) for call in calls]
    assert inputs[0].partial is None
    assert [await world.blobs.get(one.partial) for one in inputs[1:]] == [b"0", b"1"]
    for attribute in ("reference_logprobs", "values"):
        [ref], [other] = (getattr(found.parts[0], attribute) for found in (rounds, expected))
        assert ref.sha256 == other.sha256


@in_virtual_time
@pytest.mark.parametrize("stage", JUDGES)
async def test_a_judge_that_never_ends_or_does_not_say_where_it_is_breaks_the_contract(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MAX_SEGMENTS", 3)
    for says_where in (True, False):
        world = await make_world(tmp_path / str(says_where), **ALL)
        cut(world, stage, times=10, says_where=says_where)
        with pytest.raises(ContractBroken, match="3 times" if says_where else "did not say from where"):
            await judged(world)


@in_virtual_time
async def test_values_have_the_critics_budget_of_tokens(tmp_path: Path) -> None:
    for number, (config, tokens) in enumerate(
        [
            ({}, 32768),
            ({"actor__ppo_max_token_len_per_gpu": 600}, 1200),
            ({"critic__ppo_max_token_len_per_gpu": 700}, 1400),
        ]
    ):
        world = await make_world(tmp_path / str(number), **ALL | config)
        await judged(world)
        [values] = world.stages.seen(Stage.CRITIC)
        assert values.inputs.operation.max_token_len == tokens
