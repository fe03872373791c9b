"""When actors are cut, what they are told, and what is left alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.runs import migrating
from controller.runs.actor_reports import Heard
from controller.runs.migrating import CALM_S, Migration, Migrator, WorkerCalls, migration_of
from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.migration import ActorProgress, Cut, MigrationFigures, Spent
from controller.scheduling.observations import PlatformFigures, PromptGroup, Resources, SchedulePolicy, StepObservations
from controller.scheduling.plan import PRIOR
from shared.contracts.rollout import RolloutProgress, WorkItem
from shared.contracts.rollout_mail import MailKind, RolloutMail, Taker
from shared.store.base import Part
from tests.fakes.sampled import BATCH
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, World, make_world
from tests.unit.controller.runs.test_actor_reports import report, sequences

FIGURES = MigrationFigures()
ITEM = WorkItem(row_uid="a", samples=(1,))


class Decider:
    """In place of ``decide_migrations``: notes what it is asked, and answers what is written down."""

    def __init__(self, *answers: tuple[Cut, ...]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Sequence[ActorProgress], MigrationFigures, set[int]]] = []
        self.spent: list[Spent] = []

    def __call__(
        self, progress: Any, profile: Any, figures: MigrationFigures, *, already_cut: Any, remaining: Any, spent: Spent
    ) -> tuple[Cut, ...]:
        self.spent.append(spent)
        self.asked.append((progress, figures, set(already_cut)))
        return self.answers.pop(0) if self.answers else ()


class Scene:
    """A migrator, the calls that run, and the mail it sends."""

    def __init__(self, world: World, migrator: Migrator, decider: Decider, num_shards: int) -> None:
        self.world = world
        self.migrator = migrator
        self.decider = decider
        self.calls = WorkerCalls(num_shards=num_shards, open=dict.fromkeys(range(num_shards), 0))

    async def look(self, *reports: RolloutProgress) -> None:
        await self.migrator.look({one.shard: one for one in reports}, self.calls)

    async def mail(self, shard: int) -> list[RolloutMail]:
        messages = (await self.world.store.work.mail(BATCH, shard=shard)).messages
        return [RolloutMail.model_validate_json(message) for message in messages]

    async def events(self) -> list[Any]:
        return [event.data for event in await self.world.store.events.read(RUN) if event.kind == "migration"]


async def scene_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: tuple[Cut, ...], num_shards: int = 3
) -> Scene:
    world, decider = await make_world(folder), Decider(*answers)
    monkeypatch.setattr(migrating, "decide_migrations", decider)
    run = await world.context()
    migrator = Migrator(run, BATCH, Migration(profile=PRIOR, figures=FIGURES), Heard())
    await world.store.work.put_items(BATCH, fence=run.fence, assigned=[[]] * num_shards, offered=[ITEM])
    return Scene(world, migrator, decider, num_shards)


def busy(shard: int, *, free: int = 4, running: int = 2, **fields: Any) -> RolloutProgress:
    named = {f"{'abcdefg'[shard]}{sample}": 100 + sample for sample in range(running)}
    return report(
        shard,
        **{"num_assigned": 8, "num_done": 8 - running, "running": sequences(**named), "free_slots": free, **fields},
    )


def cut(shard: int, **fields: Any) -> Cut:
    return Cut(**{"shard": shard, "reason": "tau", "with_kv": False, "saved_s": 1.5, **fields})


@in_virtual_time
async def test_a_cut_is_mailed_with_its_takers_and_told_as_an_event(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch, (cut(0, with_kv=True, takers=((2, 2), (1, 1))),))
        await scene.look(busy(0, running=3), busy(1, free=1), busy(2, free=5))
    takers = (Taker(shard=2, free_slots=2), Taker(shard=1, free_slots=1))
    assert await scene.mail(0) == [RolloutMail(kind=MailKind.CUT, fence=1, segment=0, takers=takers, with_kv=True)]
    assert await scene.mail(1) == await scene.mail(2) == []
    [event] = await scene.events()
    assert event | {"at": 0.0} == {
        "purpose": "train",
        "step": 0,
        "round": 0,
        "shard": 0,
        "instance": "i-0",
        "at": 0.0,
        "reason": "tau",
        "with_kv": True,
        "num_sequences": 3,
        "num_tokens": 303,
        "expected_saved_s": 1.5,
        "takers": {"2": 2, "1": 1},
    }


@in_virtual_time
async def test_nothing_is_decided_until_what_moved_has_arrived(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch, (cut(0),))
        await scene.look(busy(0), busy(1), busy(2))
        await scene.look(busy(0), busy(1), busy(2))
        assert len(scene.decider.asked) == 1
        del scene.calls.open[0]
        await scene.look(busy(1), busy(2))
        assert len(scene.decider.asked) == 1
        await scene.world.platform.sleep(CALM_S)
        await scene.look(busy(1), busy(2))
    assert len(scene.decider.asked) == 2
    assert scene.decider.asked[-1][2] == {0}


@in_virtual_time
async def test_an_actor_that_has_not_begun_means_that_the_end_is_not_near(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch)
        await scene.look(busy(0), busy(2))
        await scene.look(busy(0), busy(1), busy(2))
    assert [figures.end_game for _, figures, _ in scene.decider.asked] == [False, True]


@in_virtual_time
async def test_the_policy_knows_what_the_step_has_taken(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch)
        for _ in range(2):
            await scene.world.platform.sleep(2.0)
            await scene.look(busy(0), busy(1), busy(2))
        del scene.calls.open[1]
        await scene.world.platform.sleep(1.0)
        await scene.look(busy(0), busy(2))
    assert scene.decider.spent == [
        Spent(time_s=2.0, held_s=6.0),
        Spent(time_s=4.0, held_s=12.0),
        Spent(time_s=5.0, held_s=14.0),
    ]


@in_virtual_time
async def test_a_report_is_told_to_the_policy_as_it_is(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch, num_shards=1)
        await scene.look(busy(0, num_waiting=1, most_migrations=2, context_tokens=77, tokens_per_s=5.0))
    [[progress]] = [asked for asked, _, _ in scene.decider.asked]
    assert progress == ActorProgress(
        shard=0,
        instance="i-0",
        at=1.0,
        num_assigned=8,
        num_done=6,
        num_waiting=1,
        running=(("a", 0, 100), ("a", 1, 101)),
        free_slots=4,
        tokens_per_s=5.0,
        max_tokens=100,
        context_tokens=77,
        most_moves=2,
    )


@in_virtual_time
async def test_what_waits_for_an_actor_that_has_gone_is_offered_and_all_are_told(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        scene = await scene_of(tmp_path, monkeypatch, (cut(0),))
        work = scene.world.store.work
        await scene.look(busy(0), busy(1), busy(2))
        await scene.migrator.look({}, WorkerCalls(num_shards=3, open={0: 0}))
        assert await scene.mail(2) == []
        del scene.calls.open[0], scene.calls.open[1]
        await leave(scene, to=1)
        await scene.look(busy(2))
        await scene.look(busy(2))
    assert [mail.kind for mail in await scene.mail(2)] == [MailKind.WORK]
    lease = await work.lease(BATCH, shard=2, owner="w", fence=1, ttl_s=9.0, max_items=9, max_deliveries=3)
    assert [leased.item for leased in lease.items] == [ITEM]


async def leave(scene: Scene, *, to: int) -> None:
    """As a cut worker does."""
    work = scene.world.store.work
    await work.lease(BATCH, shard=0, owner="cut", fence=1, ttl_s=9.0, max_items=1, max_deliveries=3)
    await work.return_item(BATCH, owner="cut", item=ITEM, parts=[Part(to, ITEM)])


def observations() -> StepObservations:
    estimate = LengthEstimate(lengths=(5.0, 9.0), source="history")
    return StepObservations(
        groups=(PromptGroup(row_uid="a", num_prompt_tokens=3, estimate=estimate),),
        group_size=2,
        max_tokens=100,
        resources=Resources(num_threads=2, max_actors=4, shared_threads=True),
        profile=replace(PRIOR, base_s=0.5),
        platform=PlatformFigures(bandwidth_bytes_per_s=1e6),
    )


def test_the_schedule_says_how_to_migrate() -> None:
    policy = SchedulePolicy(tau=0.6, end_game=False, with_kv="always", lambda_=0.2, probing=False)
    migration = migration_of(observations(), policy)
    assert migration is not None
    assert migration.profile.base_s == 0.5
    assert migration.figures == MigrationFigures(
        tau=0.6,
        end_game=False,
        with_kv="always",
        lambda_=0.2,
        bandwidth_bytes_per_s=1e6,
        shared_threads=True,
    )
    assert (migration.estimates["a"].max, migration.probes) == (9.0, False)


def test_before_anything_is_measured_the_profile_is_a_guess() -> None:
    migration = migration_of(replace(observations(), profile=None, max_num_sequences=7), SchedulePolicy())
    assert migration is not None
    assert migration.profile == replace(PRIOR, max_num_sequences=7)


@pytest.mark.parametrize("policy", [SchedulePolicy(migration=False), SchedulePolicy(tau=1.0)])
def test_a_schedule_without_migration_has_none(policy: SchedulePolicy) -> None:
    assert migration_of(observations(), policy) is None
