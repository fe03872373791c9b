"""Cut-and-migrate with the real controller, store and workers in virtual time: cheaper, and the same completions."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.runs import migrating
from controller.runs.actor_hold import ActorHold
from controller.runs.migrating import Migration
from controller.runs.sampling import publish_prompts, sample_batch
from controller.scheduling.migration import Cut, MigrationFigures
from controller.scheduling.plan import plan_evenly
from shared.codec.completions import decode_completion
from shared.contracts.completion import Completion, SampleId, num_migrations
from shared.contracts.rollout import Sampling
from shared.contracts.rollout_mail import MailKind
from shared.contracts.stage import Stage
from tests.fakes.paced_rollout import PROFILE, PacedRollout, kill_one, virtual_stages
from tests.fakes.sampled import BATCH, POLICY
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, SPECS, World, make_world, prompts_of

NUM_ACTORS = 4
GROUP = 4
PROMPTS = prompts_of("train", 8)
ROWS = tuple(prompt.row_uid for prompt in PROMPTS)
IDS = [SampleId(row, sample) for row in ROWS for sample in range(GROUP)]
SAMPLING = Sampling(temperature=1.0, max_tokens=2000, eos_token_ids=(1,))
MIGRATION = Migration(profile=replace(PROFILE, max_num_sequences=32), figures=MigrationFigures())
HOLD_S = 500.0


@pytest.fixture(autouse=True)
def virtual() -> Iterator[None]:
    with virtual_stages():
        yield


def skewed(seed: int = 0) -> dict[tuple[str, int], int]:
    """Most are short, and each actor has one that goes on for long."""
    noise = Random(seed)
    lengths = {(id.row_uid, id.sample): noise.randint(20, 120) for id in IDS}
    return lengths | {(row, 1): noise.randint(400, 900) for row in ROWS[::2]}


@dataclass(frozen=True)
class Run:
    """One batch, sampled."""

    completions: Mapping[SampleId, Completion]
    took_s: float
    held_s: float
    """Of all replicas of rollout together."""
    events: list[Mapping[str, Any]]
    num_calls: int


async def prepared(folder: Path, lengths: Mapping[tuple[str, int], int], **rollout: Any) -> tuple[World, PacedRollout]:
    # Idle replicas stay for as long as they are held, and no longer.
    specs = tuple(replace(spec, window_s=0.5) for spec in SPECS)
    world = await make_world(folder, specs=specs, rollout__n=GROUP, **{"rollout__max_num_seqs": 32, **rollout})
    actors = PacedRollout(lengths)
    world.stages.rollout.handle = actors.handle
    return world, actors


async def sampled(world: World, *, migration: Migration | None, holds: bool = True) -> Run:
    """Sample the batch on four actors that are up already."""
    run = await world.context()
    plan = plan_evenly(ROWS, group_size=GROUP, resources=run.resources, num_actors=NUM_ACTORS)
    until = world.platform.now() + HOLD_S
    await world.platform.scale(Stage.ROLLOUT, NUM_ACTORS, hold_until=until)
    await world.platform.sleep(3.0)
    began_at = world.platform.now()
    hold = ActorHold(world.platform, NUM_ACTORS, until=until) if holds else None
    prompts = await publish_prompts(run, BATCH, PROMPTS)
    await sample_batch(run, BATCH, plan, prompts, POLICY, SAMPLING, migration=migration, hold=hold)
    ended_at = world.platform.now()
    lives = [life for life in await world.platform.replicas() if Stage.ROLLOUT in life.stages]
    stored = await world.store.work.samples(BATCH, IDS)
    return Run(
        completions={id: decode_completion(data) for id, data in stored.items()},
        took_s=ended_at - began_at,
        held_s=sum(min(life.ended_at or ended_at, ended_at) - began_at for life in lives),
        events=[event.data for event in await world.store.events.read(RUN) if event.kind == "migration"],
        num_calls=len(world.stages.seen(Stage.ROLLOUT)),
    )


def tokens(run: Run) -> dict[SampleId, list[int]]:
    return {id: completion.token_ids.tolist() for id, completion in run.completions.items()}


def check_complete(run: Run, lengths: Mapping[tuple[str, int], int]) -> None:
    """Every completion is there, as long as it was to be, with the tokens that its address says."""
    assert sorted(run.completions) == sorted(IDS)
    for id, completion in run.completions.items():
        assert len(completion.token_ids) == lengths[id.row_uid, id.sample]
        assert completion.finish_reason == "stop"
        counts = [stay.num_tokens for stay in completion.stays]
        assert counts == sorted(counts)
        assert counts[-1] == len(completion.token_ids)


@in_virtual_time
async def test_tails_move_together_and_their_actors_are_given_back(tmp_path: Path) -> None:
    lengths = skewed()
    before = await sampled((await prepared(tmp_path / "stay", lengths))[0], migration=None)
    after = await sampled((await prepared(tmp_path / "move", lengths))[0], migration=MIGRATION)
    check_complete(before, lengths)
    check_complete(after, lengths)
    assert tokens(after) == tokens(before)
    assert after.events
    assert after.held_s < 0.8 * before.held_s
    # What moves stands still for a moment, and that is all it costs.
    assert after.took_s < before.took_s + 2.0
    moves = [num_migrations(completion.stays) for completion in after.completions.values()]
    # Some end while their actor is being cut.
    assert 0 < sum(moves) <= sum(event["num_sequences"] for event in after.events)
    assert max(moves) <= 2
    assert before.events == []


@in_virtual_time
async def test_without_early_release_idle_actors_are_held_to_the_end(tmp_path: Path) -> None:
    lengths = skewed()
    held = await sampled((await prepared(tmp_path / "held", lengths))[0], migration=None, holds=False)
    given = await sampled((await prepared(tmp_path / "given", lengths))[0], migration=None)
    assert tokens(given) == tokens(held)
    assert held.held_s == pytest.approx(NUM_ACTORS * held.took_s)
    assert given.held_s < held.held_s
    assert given.took_s == pytest.approx(held.took_s, rel=0.02)


@in_virtual_time
async def test_at_tau_1_nothing_moves(tmp_path: Path) -> None:
    lengths = skewed()
    world, _ = await prepared(tmp_path, lengths)
    run = await sampled(world, migration=replace(MIGRATION, figures=MigrationFigures(tau=1.0)))
    check_complete(run, lengths)
    assert run.events == []
    assert all(len(completion.stays) == 1 for completion in run.completions.values())


@in_virtual_time
async def test_what_waits_is_no_tail(tmp_path: Path) -> None:
    """With eight groups per actor and room for one, nobody is cut while others' queues are not empty."""
    lengths = {(id.row_uid, id.sample): 40 + 2 * id.sample for id in IDS}
    world, _ = await prepared(tmp_path, lengths, rollout__max_num_seqs=4)
    run = await sampled(world, migration=MIGRATION)
    check_complete(run, lengths)
    assert run.events == []


@in_virtual_time
async def test_a_taker_that_has_just_ended_leaves_what_it_was_given_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = {(id.row_uid, id.sample): 30 for id in IDS} | {(ROWS[0], 0): 1000, (ROWS[6], 0): 1000}
    world, _ = await prepared(tmp_path, lengths)
    cuts: list[float] = []

    def cut_the_first(progress: Any, *arguments: Any, **named: Any) -> tuple[Cut, ...]:
        alone = {one.shard for one in progress} == {0, 3}
        if cuts or not alone:
            return ()
        cuts.append(world.platform.now())
        # Shard 1 is long gone.
        return (Cut(shard=0, reason="tau", with_kv=False, takers=((1, 1),)),)

    monkeypatch.setattr(migrating, "decide_migrations", cut_the_first)
    run = await sampled(world, migration=MIGRATION)
    check_complete(run, lengths)
    first, second = run.completions[SampleId(ROWS[0], 0)].stays
    assert (first.shard, second.shard) == (0, 3)
    assert second.started_at - first.ended_at < 2.0
    assert run.num_calls == NUM_ACTORS


@in_virtual_time
async def test_when_nobody_is_left_the_rest_is_called_again_at_once_and_by_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = {(id.row_uid, id.sample): 30 for id in IDS} | {(ROWS[0], 0): 500}
    world, _ = await prepared(tmp_path, lengths)
    cuts: list[int] = []

    def cut_the_last(progress: Any, *arguments: Any, **named: Any) -> tuple[Cut, ...]:
        if cuts or {one.shard for one in progress} != {0}:
            return ()
        cuts.append(0)
        return (Cut(shard=0, reason="tau", with_kv=False, takers=((2, 1),)),)

    monkeypatch.setattr(migrating, "decide_migrations", cut_the_last)
    run = await sampled(world, migration=MIGRATION)
    check_complete(run, lengths)
    assert run.num_calls == NUM_ACTORS + 1
    first, second = run.completions[SampleId(ROWS[0], 0)].stays
    # A replica may have to start for it.
    assert second.started_at - first.ended_at < 4.0


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_killed_and_cut_actors_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    lengths, noise = skewed(seed), Random(seed)
    world, _ = await prepared(tmp_path, lengths)
    eager = replace(MIGRATION, figures=MigrationFigures(tau=0.5, with_kv=noise.choice(["never", "always"])))
    sampling = asyncio.create_task(sampled(world, migration=eager))
    cut = asyncio.Event()
    post = world.store.work.post

    async def note_cuts(batch: Any, *, shard: int | None, message: str) -> None:
        if f'"{MailKind.CUT}"' in message:
            cut.set()
        await post(batch, shard=shard, message=message)

    monkey = pytest.MonkeyPatch()
    monkey.setattr(world.store.work, "post", note_cuts)
    try:
        for _ in range(3):
            cut.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(cut.wait(), noise.uniform(2.0, 10.0))
            # Before it reads the mail, while it saves, or after it has handed everything on.
            await asyncio.sleep(noise.choice([0.0, 0.03, 0.06, 0.1, 0.5]))
            await kill_one(world.platform, noise)
        run = await sampling
    finally:
        monkey.undo()
    check_complete(run, lengths)
    assert await world.store.work.num_queued(BATCH) == 0
