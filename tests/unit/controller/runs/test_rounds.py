"""The rounds of one step: which groups are trained on, and where the others go."""

from pathlib import Path
from typing import Any

import pytest

from controller.runs.config.run_config import RunConfig
from controller.runs.manifest import Manifest
from controller.runs.rounds import NothingToLearn, Rounds, max_rounds
from controller.scheduling import sharding
from shared.contracts.policy import PolicyRef
from shared.contracts.stage import Stage
from tests.fakes.sampled import POLICY, sampled_rounds
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, config_of, make_world

DYNAMIC = {"algorithm__filter_groups__enable": True, "algorithm__filter_groups__max_num_gen_batches": 3}


async def first_head(world: World, **fields: Any) -> Manifest:
    weights = await world.blobs.put(RUN, 0, "weights", b"w")
    policy = PolicyRef(version=0, model=POLICY.model, weights=weights)
    return Manifest(**{"step": 0, "data_cursor": 0, "policy": policy, "state": None, "run_seed": 42, **fields})


async def rounds_of(world: World, **fields: Any) -> Rounds:
    return await sampled_rounds(await world.context(), await first_head(world, **fields))


def trained(rounds: Rounds) -> list[str]:
    return [row_uid for part in rounds.parts for row_uid in part.row_uids]


def sampled(world: World) -> list[str]:
    """All rows in the order in which they were drawn."""
    return [row_uid for call in world.stages.seen(Stage.REWARD) for row_uid in call.inputs.row_uids]


def useful(world: World) -> list[str]:
    """Those of them whose rewards differ."""
    rewards: dict[str, set[float]] = {}
    for score in world.stages.reward.given:
        rewards.setdefault(score.row_uid, set()).add(score.reward)
    return [row_uid for row_uid in sampled(world) if len(rewards[row_uid]) > 1]


@in_virtual_time
async def test_without_a_filter_there_is_one_round_and_all_of_it_is_trained_on(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    rounds = await rounds_of(world)
    assert trained(rounds) == sampled(world)
    assert (rounds.num_rounds, rounds.num_sampled, rounds.num_trained) == (1, 4, 4)
    assert (rounds.position.cursor, rounds.position.leftover) == (4, ())


@in_virtual_time
async def test_a_filter_without_rounds_leaves_the_choice_to_the_learner(tmp_path: Path) -> None:
    world = await make_world(tmp_path, algorithm__filter_groups__enable=True)
    rounds = await rounds_of(world)
    assert trained(rounds) == sampled(world)
    assert rounds.num_rounds == 1


@in_virtual_time
async def test_groups_without_a_signal_are_replaced_and_surplus_rows_wait(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC, data__train_batch_size=3)
    rounds = await rounds_of(world)
    expected = useful(world)
    assert rounds.num_rounds > 1
    assert trained(rounds) == expected[:3]
    assert list(rounds.position.leftover) == expected[3:]
    assert len(sampled(world)) == rounds.num_sampled == rounds.position.cursor
    assert [part.round for part in rounds.parts] == sorted({part.round for part in rounds.parts})


@in_virtual_time
async def test_rows_that_wait_are_sampled_first(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC)
    rounds = await rounds_of(world, data_cursor=8, leftover_rows=("train-000003.e0", "train-000001.e0"))
    assert sampled(world)[:2] == ["train-000003.e0", "train-000001.e0"]
    assert rounds.position.cursor == 8 + rounds.num_sampled - 2


@in_virtual_time
async def test_a_batch_that_does_not_fill_is_trained_on_as_it_is_and_says_so(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC | {"algorithm__filter_groups__max_num_gen_batches": 1})
    rounds = await rounds_of(world)
    assert 0 < rounds.num_trained < 4
    events = [event.data for event in await world.store.events.read(RUN) if event.kind == "log"]
    assert any(f"trains on {rounds.num_trained} of 4 groups" in event["message"] for event in events)


@in_virtual_time
async def test_rounds_without_any_signal_end_the_run_and_say_what_to_do(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC)
    world.stages.reward.reward_of = lambda completion: 1.0
    with pytest.raises(NothingToLearn, match="max_num_gen_batches"):
        await rounds_of(world)
    assert len(world.stages.seen(Stage.REWARD)) == 3


@in_virtual_time
async def test_reference_and_critic_see_only_what_is_trained_on(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC)
    head = await first_head(world)
    head = head.model_copy(update={"reference": head.policy, "critic": head.policy})
    rounds = await sampled_rounds(await world.context(), head)
    for stage, rows in (
        (Stage.REFERENCE, [uid for call in world.stages.seen(Stage.REFERENCE) for uid in call.inputs.row_uids]),
        (Stage.CRITIC, [uid for call in world.stages.seen(Stage.CRITIC) for uid in call.inputs.operation.row_uids]),
    ):
        assert rows == trained(rounds), stage
    assert all(len(part.reference_logprobs) == len(part.values) == 1 for part in rounds.parts)


@in_virtual_time
async def test_judges_are_asked_by_completions_and_not_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharding, "COMPLETIONS_PER_CALL", 6)
    world = await make_world(tmp_path)
    head = await first_head(world)
    head = head.model_copy(update={"reference": head.policy, "critic": head.policy})
    rounds = await sampled_rounds(await world.context(), head)
    for stage in (Stage.REWARD, Stage.REFERENCE, Stage.CRITIC):
        inputs = [(call.key.shard, call.inputs) for call in world.stages.seen(stage)]
        asked = {shard: getattr(one, "operation", one).row_uids for shard, one in inputs}
        assert {shard: len(row_uids) for shard, row_uids in asked.items()} == {0: 3, 1: 1}, stage
        assert [row for shard in sorted(asked) for row in asked[shard]] == trained(rounds)
    [part] = rounds.parts
    assert len(part.scores) == len(part.reference_logprobs) == len(part.values) == 2


@in_virtual_time
@pytest.mark.parametrize(("shared_threads", "judging_s"), [(True, 3.0), (False, 1.5)])
async def test_judges_compute_beside_each_other_unless_they_share_their_cores(
    tmp_path: Path, shared_threads: bool, judging_s: float
) -> None:
    """Reward takes 0.5 s, reference 1 s, critic 1.5 s."""
    world = await make_world(tmp_path)
    world.shared_threads = shared_threads
    head = await first_head(world)
    head = head.model_copy(update={"reference": head.policy, "critic": head.policy})
    run = await world.context()
    for stage in (Stage.REWARD, Stage.REFERENCE, Stage.CRITIC):
        await run.platform.scale(stage, 1, hold_until=run.platform.now() + 600)
    await run.platform.sleep(60)
    began_at = run.platform.now()
    rounds = await sampled_rounds(run, head)
    assert run.platform.now() - began_at - rounds.timings_s["gen"] == pytest.approx(judging_s)
    own = {name: seconds for name, seconds in rounds.timings_s.items() if name != "gen"}
    assert own == pytest.approx({"reward": 0.5, "ref": 1.0, "values": 1.5}, abs=1e-5)


@in_virtual_time
async def test_the_rounds_of_a_step_are_timed_together_and_absent_stages_not_at_all(tmp_path: Path) -> None:
    world = await make_world(tmp_path, **DYNAMIC, data__train_batch_size=3)
    run, head = await world.context(), await first_head(world)
    began_at = run.platform.now()
    rounds = await sampled_rounds(run, head)
    assert rounds.num_rounds > 1
    assert rounds.timings_s.keys() == {"gen", "reward"}
    assert sum(rounds.timings_s.values()) == pytest.approx(run.platform.now() - began_at)


@pytest.mark.parametrize(
    ("overrides", "most"),
    [({}, 1), ({"algorithm__filter_groups__enable": True}, 1), (DYNAMIC, 3)],
)
def test_no_step_has_more_rounds_than_the_config_allows(overrides: dict[str, Any], most: int) -> None:
    config: RunConfig = config_of(**overrides)
    assert max_rounds(config) == most
