"""What the next step needs is stored before the head names it, whatever is checkpointed."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from controller.runs.manifest import Manifest, named_blobs
from shared.store.base import RunStore
from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import World, make_world


class ReadsFirst:
    """A run store that reads all blobs of a head before it moves there."""

    def __init__(self, runs: RunStore, world: World) -> None:
        self._runs = runs
        self._blobs = world.blobs
        self.read: dict[int, list[str]] = {}
        """Step of a head → the places of the blobs that it names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)

    async def advance(self, run: str, *, manifest: bytes, **fields: Any) -> bool:
        head = Manifest.model_validate_json(manifest)
        named = named_blobs(head)
        for ref in named.values():
            # Raises where it is not there.
            await self._blobs.get(ref)
        self.read[head.step] = sorted(named)
        return await self._runs.advance(run, manifest=manifest, **fields)


@pytest.mark.parametrize("save_freq", [-1, 1, 2])
@in_virtual_time
async def test_weights_and_optimizer_states_are_durable_at_every_step(tmp_path: Path, save_freq: int) -> None:
    world = await make_world(
        tmp_path,
        algorithm__adv_estimator="gae",
        trainer__total_training_steps=4,
        trainer__save_freq=save_freq,
        trainer__max_ckpt_to_keep=1,
    )
    runs = ReadsFirst(world.store.runs, world)

    await world.drive(store=replace(world.store, runs=cast(RunStore, runs)))

    states = ["critic.weights", "critic_state", "packing_plan", "policy.weights", "state"]
    assert runs.read == {0: ["critic.weights", "policy.weights"]} | dict.fromkeys(range(1, 5), states)


@in_virtual_time
async def test_what_is_checkpointed_changes_nothing_of_what_is_learned(tmp_path: Path) -> None:
    heads = []
    for save_freq in (-1, 1):
        world = await make_world(tmp_path / str(save_freq), trainer__save_freq=save_freq)
        heads.append(await world.drive())

    assert [len(head.checkpoints) for head in heads] == [1, 3]
    assert (heads[0].policy, heads[0].state) == (heads[1].policy, heads[1].state)
