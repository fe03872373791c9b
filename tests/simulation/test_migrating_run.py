"""Whole runs whose actors are cut, given back and killed: they learn from the same completions as if all had stayed."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from controller.runs.manifest import Manifest
from shared.contracts.stage import Stage
from tests.fakes.paced_rollout import PacedRollout, kill_one, virtual_stages
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, SPECS, World, make_world, without_folders

GROUP = 4


@pytest.fixture(autouse=True)
def virtual() -> Iterator[None]:
    with virtual_stages():
        yield


class Skewed(dict[tuple[str, int], int]):
    """Lengths of all completions: short ones, and in every group one that is ten times as long."""

    def get(self, key: tuple[str, int], default: Any = None) -> int:
        """Of a sample of any row in any epoch."""
        noise = Random(f"{key}")
        return noise.randint(300, 900) if key[1] == 1 else noise.randint(20, 80)


async def world_of(folder: Path, **overrides: Any) -> World:
    world = await make_world(
        folder,
        specs=tuple(replace(spec, window_s=1.0) for spec in SPECS),
        rollout__n=GROUP,
        rollout__max_num_seqs=32,
        rollout__num_actors=4,
        data__max_response_length=2000,
        **overrides,
    )
    world.shared_threads = False
    world.stages.rollout.handle = PacedRollout(Skewed()).handle
    return world


async def migrations(world: World) -> list[Any]:
    return [event.data for event in await world.store.events.read(RUN) if event.kind == "migration"]


async def held_s(world: World) -> float:
    """Seconds of all replicas of rollout."""
    now = world.platform.now()
    lives = [life for life in await world.platform.replicas() if Stage.ROLLOUT in life.stages]
    return sum((life.ended_at or now) - life.scheduled_at for life in lives)


@in_virtual_time
async def test_a_run_with_migration_is_the_same_run_and_holds_its_actors_for_less(tmp_path: Path) -> None:
    heads: list[Manifest] = []
    costs: list[float] = []
    for name, tau in (("stay", 1.0), ("move", 0.7)):
        world = await world_of(tmp_path / name, schedule__migration__tau=tau)
        heads.append(without_folders(await world.drive()))
        costs.append(await held_s(world))
        assert bool(await migrations(world)) == (tau < 1.0)
    assert heads[0].step == 3
    assert heads[1].policy == heads[0].policy
    assert costs[1] < costs[0]


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_killed_actors_change_nothing_that_is_learnt(tmp_path: Path, seed: int) -> None:
    noise = Random(seed)
    calm = await (await world_of(tmp_path / "calm")).drive()
    world = await world_of(tmp_path / "stormy")
    driving = asyncio.create_task(world.drive())
    num_killed = 0
    # Whoever loses a row for the third time is told that the row is to blame.
    while not driving.done() and num_killed < 2:
        await asyncio.wait({driving}, timeout=noise.uniform(8.0, 20.0))
        num_killed += await kill_one(world.platform, noise)
    assert num_killed == 2
    assert (await driving).policy == calm.policy
    assert await migrations(world)
