"""The speed of a model: learnt from calls, kept by model and revision, measured once before the first step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs.prefilling import Prefilled
from controller.runs.profiles import (
    KnownSpeed,
    format_speed,
    learnt,
    measure_speed,
    parse_speed,
    read_speed,
    speed_name,
    with_lengths,
    with_prefill,
    with_stages,
    write_speed,
)
from controller.scheduling.plan import PRIOR
from shared.contracts.call import StageCall
from shared.contracts.prefill import PrefillOutputs
from shared.contracts.rollout import DecodeStretch, Operation, RolloutInputs, RolloutOutputs
from shared.contracts.stage import Purpose, Stage
from shared.service.handler import CallContext, Outcome
from tests.fakes.planned import ROLLOUT
from tests.fakes.scripted import Scripted, refusal
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world


def outputs(step_s: float = 0.02, **fields: Any) -> RolloutOutputs:
    """A call that decoded 100 steps of 4 sequences."""
    stretch = DecodeStretch(num_steps=100, num_sequences=4.0, context_tokens=400.0, seconds=100 * step_s)
    return RolloutOutputs(num_completions=4, num_tokens=400, **{"decode": (stretch,), **fields})


def speed(step_s: float = 0.02, *, threads: int = 1) -> KnownSpeed:
    known = learnt(None, [outputs(step_s)], threads=threads, max_num_sequences=8)
    assert known is not None
    return known


# --- learning -----------------------------------------------------------------------------------------------------


def test_nothing_is_known_of_calls_that_decoded_nothing() -> None:
    assert learnt(None, [], threads=1, max_num_sequences=8) is None
    assert learnt(None, [outputs(decode=())], threads=1, max_num_sequences=8) is None


def test_a_call_tells_the_speed_and_the_room_of_a_replica() -> None:
    known = learnt(
        None,
        [outputs(prefill_tokens=50, prefill_s=0.5, kv_capacity_tokens=900, kv_bytes_per_token=64)],
        threads=2,
        max_num_sequences=8,
    )
    assert known is not None
    assert known.profile.step_seconds(4.0, 400.0) == pytest.approx(0.02, rel=0.1)
    assert known.profile.prefill_token_s == pytest.approx(0.01)
    assert (known.profile.kv_capacity_tokens, known.profile.kv_bytes_per_token) == (900, 64)
    assert (known.profile.max_num_sequences, known.threads, len(known.observations)) == (8, 2, 1)


def test_every_step_adds_to_what_is_known() -> None:
    known: KnownSpeed | None = speed(0.02)
    for _ in range(20):
        known = learnt(known, [outputs(0.04)], threads=1, max_num_sequences=8)
    assert known is not None
    assert known.profile.step_seconds(4.0, 400.0) == pytest.approx(0.04, rel=0.1)
    assert len(known.observations) == 21


def test_a_call_that_says_nothing_of_itself_changes_nothing() -> None:
    before = replace(speed(), bandwidth_bytes_per_s=5.0, stage_s={"reward": 1.0})
    after = learnt(before, [RolloutOutputs(num_completions=1, num_tokens=1)], threads=4, max_num_sequences=8)
    assert after is not None
    assert (after.threads, after.observations, after.stage_s) == (1, before.observations, {"reward": 1.0})
    assert after.bandwidth_bytes_per_s == 5.0
    assert after.profile.step_seconds(4, 400) == pytest.approx(before.profile.step_seconds(4, 400), rel=0.05)


def test_replicas_with_other_threads_are_measured_anew() -> None:
    after = learnt(speed(0.02, threads=1), [outputs(0.01)], threads=2, max_num_sequences=8)
    assert after is not None
    assert (after.threads, len(after.observations)) == (2, 1)
    assert after.profile.step_seconds(4.0, 400.0) == pytest.approx(0.01, rel=0.1)


def test_fetched_kv_tells_the_bandwidth() -> None:
    after = learnt(speed(), [outputs(prefix_bytes=100, prefix_s=0.5)], threads=1, max_num_sequences=8)
    assert after is not None
    assert after.bandwidth_bytes_per_s == 200.0


def test_prefilling_apart_tells_its_speed_and_a_slow_way_into_the_store() -> None:
    known = replace(speed(), bandwidth_bytes_per_s=200.0)
    made = PrefillOutputs(
        computed_tokens=10,
        compute_s=1.0,
        stored_bytes=50,
        store_s=0.5,
        num_prefixes=1,
        num_prefix_tokens=10,
        num_handles=1,
    )
    after = with_prefill(known, [Prefilled(seconds=2.0, outputs=(made,)), Prefilled(seconds=0.0)])
    assert (after.apart_token_s, after.bandwidth_bytes_per_s) == (0.1, 100.0)


def test_other_stages_are_known_by_the_token_and_follow_the_latest_steps() -> None:
    known = with_stages(speed(), {"gen": 9.0, "reward": 2.0, "step": 11.0}, num_tokens=100)
    assert known.stage_s == {"reward": 0.02}
    assert with_stages(known, {"reward": 4.0}, num_tokens=100).stage_s == {"reward": pytest.approx(0.03)}
    assert with_stages(known, {"reward": 4.0}, num_tokens=0) == known


def test_the_lengths_of_the_latest_step_are_kept_with_the_speed() -> None:
    known = with_lengths(speed(), {"schedule/lengths/mean": 30.0, "schedule/lengths/per_answer_token": 8.0})
    assert (known.mean_tokens, known.per_answer_token) == (30.0, 8.0)
    assert with_lengths(known, {"schedule/lengths/mean": 31.0}).per_answer_token == 8.0


# --- keeping ------------------------------------------------------------------------------------------------------


def test_speed_comes_back_from_text() -> None:
    known = with_stages(replace(speed(), bandwidth_bytes_per_s=5.0), {"reward": 2.0}, num_tokens=100)
    assert parse_speed(format_speed(known)) == known
    assert parse_speed(None) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"threads": 1, "profile": {"base_s": "fast"}}'])
def test_what_another_version_kept_is_measured_again(text: str) -> None:
    assert parse_speed(text) is None


def test_a_speed_belongs_to_a_model_and_to_what_serves_it() -> None:
    name = speed_name((ROLLOUT,), "model")
    assert name == speed_name((ROLLOUT,), "model")
    others = {
        speed_name((ROLLOUT,), "another"),
        speed_name((replace(ROLLOUT, revision="rollout-00002"),), "model"),
        speed_name((replace(ROLLOUT, image="function:2"),), "model"),
    }
    assert len({name, *others}) == 4
    assert speed_name((replace(ROLLOUT, stages=(Stage.REWARD,)),), "model") is None


@in_virtual_time
async def test_another_run_of_the_same_model_finds_the_speed(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    run = await world.context()
    assert await read_speed(run) is None
    await write_speed(run, speed())
    assert await read_speed(await world.context()) == speed()
    await world.store.runs.delete(RUN)
    assert await read_speed(run) == speed()


# --- measuring ----------------------------------------------------------------------------------------------------


class Measuring:
    """Lets the world's rollout answer profile calls."""

    def __init__(self, world: World) -> None:
        self.calls: list[StageCall[RolloutInputs]] = []
        self._handle = world.stages.rollout.handle
        world.stages.rollout.handle = self.handle  # type: ignore[method-assign]

    async def handle(self, call: StageCall[RolloutInputs], context: CallContext) -> Outcome[RolloutOutputs]:
        if call.key.operation != Operation.PROFILE:
            return await self._handle(call, context)
        self.calls.append(call)
        assert call.policy is not None
        return Outcome(outputs=outputs(), policy_version=call.policy.version, weights_digest=call.policy.digest)


@in_virtual_time
async def test_a_run_measures_its_model_once_before_its_first_step(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    measuring = Measuring(world)
    await world.drive()
    [call] = measuring.calls
    assert (call.key.purpose, call.key.step, call.threads) == (Purpose.INIT, 0, 1)
    assert (call.inputs.num_samples, call.inputs.max_num_sequences, call.inputs.sampling.max_tokens) == (2, 4, 20)
    first_step = next(seen.at for seen in world.stages.calls if seen.key.purpose is Purpose.TRAIN)
    assert next(seen.at for seen in world.stages.calls if seen.key.operation == Operation.PROFILE) < first_step
    known = await read_speed(await world.context())
    assert known is not None
    assert known.profile.max_num_sequences == 4
    # The next run of the model measures nothing.
    await measure_speed(await world.context(), await world.head())
    assert len(measuring.calls) == 1


@in_virtual_time
async def test_nothing_is_measured_where_it_makes_no_difference(tmp_path: Path) -> None:
    forced = await make_world(tmp_path / "forced", rollout__num_actors=2)
    alone = await make_world(tmp_path / "alone")
    alone.max_actors = 1
    for world in (forced, alone):
        measuring = Measuring(world)
        await world.drive()
        assert measuring.calls == []


@in_virtual_time
async def test_a_failure_to_measure_only_warns(tmp_path: Path) -> None:
    def failing(function: Any) -> Scripted:
        return Scripted(function, [refusal(500, "broken")])

    world = await make_world(tmp_path, num_heldout=0, wrapped={Stage.ROLLOUT: failing})
    head = await world.drive()
    assert head.step == 3
    events = [event.data for event in await world.store.events.read(RUN) if event.kind == "log"]
    [warning] = [event["message"] for event in events if event["level"] == "warning"]
    assert "speed of rollout was not measured" in warning
    assert "because of broken" in warning


def test_the_prior_is_what_a_first_measurement_is_scaled_from() -> None:
    known = speed(0.02)
    assert known.profile.base_s / known.profile.per_sequence_s == pytest.approx(
        PRIOR.base_s / PRIOR.per_sequence_s, rel=0.2
    )
