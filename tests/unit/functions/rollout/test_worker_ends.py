"""What ends a worker call before its work is done, and how another one goes on from there."""

import logging
import time

import numpy as np
import pytest

from functions.rollout import worker as worker_module
from shared.contracts.errors import (
    Cancelled,
)
from shared.contracts.rollout_mail import MailKind
from shared.service.stop_flag import StopFlag
from tests.unit.functions.rollout.batch_world import BATCH, BatchWorld, expected_tokens, saved_part
from tests.unit.functions.rollout.fake_engine import FakeEngine
from tests.unit.functions.rollout.long_rollouts import LONG, SHORT, after_steps, long_engine

FAR_S = 3600.0


async def check_that_the_rest_is_resumed(world: BatchWorld) -> None:
    """A further owner's call continues from the saved tokens, and the result is what one call would have made."""
    engine = FakeEngine(default_length=4000)
    outcome = await world.run(engine, shard=1, fence=1, sampling=LONG)
    assert outcome.outputs.num_resumed > 0
    completions = await world.completions()
    assert set(completions) == set(world.ids)
    for id, completion in completions.items():
        length = SHORT if id.sample == 0 else 4000
        assert completion.token_ids.tolist() == expected_tokens(id, length)[:500]


async def test_near_the_deadline_the_rest_is_left_for_another_call(
    world: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put()
    engine = long_engine(world)

    async def come_near() -> None:
        monkeypatch.setattr(worker_module, "SAVE_S", 2 * FAR_S)

    after_steps(engine, 5, come_near)
    outcome = await world.run(engine, world.context(deadline_at=time.time() + FAR_S), sampling=LONG)
    assert outcome.status == "continue"
    assert outcome.outputs.num_completions == world.num_rows
    assert engine.num_steps < 500
    await check_that_the_rest_is_resumed(world)


async def test_a_call_that_is_late_already_makes_progress_all_the_same(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put()
    statuses, engine = [], long_engine(world)
    while not statuses or statuses[-1] == "continue":
        outcome = await world.run(engine, world.context(deadline_at=0.0), segment=len(statuses), sampling=LONG)
        statuses.append(outcome.status)
        assert len(statuses) <= 500, "no progress"
    assert set(await world.completions()) == set(world.ids)


async def test_a_cut_ends_the_call_well_and_leaves_the_rest_to_others(world: BatchWorld) -> None:
    await world.put()
    engine = long_engine(world)
    after_steps(engine, 5, lambda: world.tell(MailKind.CUT, shard=0))
    outcome = await world.run(engine, sampling=LONG)
    assert outcome.status == "done"
    assert outcome.outputs.num_completions == world.num_rows
    await check_that_the_rest_is_resumed(world)


async def test_mail_for_another_worker_is_not_opened(memory_world: BatchWorld) -> None:
    world = memory_world
    await world.put()
    await world.tell(MailKind.CANCEL, shard=1)
    engine = FakeEngine(default_length=40, step_s=0.003)
    assert (await world.run(engine, shard=0)).outputs.num_completions == len(world.ids)


@pytest.mark.parametrize("by", ["mail", "the call's stop flag"])
async def test_a_cancelled_call_keeps_what_it_has(world: BatchWorld, by: str) -> None:
    await world.put()
    engine, stop = long_engine(world), StopFlag()

    async def cancel() -> None:
        if by == "mail":
            await world.tell(MailKind.CANCEL)
        else:
            stop.set("the caller is gone")

    after_steps(engine, 5, cancel)
    with pytest.raises(Cancelled, match="cancel" if by == "mail" else "the caller is gone"):
        await world.run(engine, world.context(stop=stop), sampling=LONG)
    assert len(await world.completions()) == world.num_rows
    await check_that_the_rest_is_resumed(world)


async def test_a_call_that_was_stopped_before_it_began_leaves_everything(memory_world: BatchWorld) -> None:
    world, stop, engine = memory_world, StopFlag(), FakeEngine()
    await world.put()
    stop.set("the caller is gone")
    with pytest.raises(Cancelled):
        await world.run(engine, world.context(stop=stop))
    assert engine.num_steps == 0
    assert await world.num_left() == world.num_rows


async def test_a_damaged_part_is_sampled_again(world: BatchWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.put()
    good, damaged = world.ids[:2]
    tokens = expected_tokens(good)[:2]
    partials = {good: saved_part(tokens, [token / -128 for token in tokens]), damaged: b"not a part"}
    await world.store.work.save_partials(BATCH, fence=0, partials=partials)
    with caplog.at_level(logging.WARNING):
        outcome = await world.run(FakeEngine())
    assert outcome.outputs.num_resumed == 1
    for id, completion in (await world.completions()).items():
        assert completion.token_ids.tolist() == expected_tokens(id)
        np.testing.assert_array_equal(completion.rollout_logprobs, np.float32(expected_tokens(id)) / -128)
    assert f"the saved part of {damaged} is left out" in caplog.text
