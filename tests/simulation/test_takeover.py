"""A controller may end at any moment: the next one goes on at the head and comes to the same end."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.virtual import in_virtual_time
from tests.fakes.world import RUN, make_world, without_folders

NUM_CUTS = 10
RUN_S = 42.0
"""About how long the run below takes undisturbed."""


@pytest.mark.parametrize("killed", [False, True], ids=["cancelled", "killed"])
@in_virtual_time
async def test_an_owner_that_ends_anywhere_leaves_a_run_that_comes_to_the_same_end(
    tmp_path: Path, killed: bool
) -> None:
    """Cancelled, its calls are withdrawn. Killed, they go on for a while beside the next owner's."""
    frequencies = {"trainer__test_freq": 1, "trainer__save_freq": 2}
    undisturbed = await make_world(tmp_path / "whole", **frequencies)
    expected = without_folders(await undisturbed.drive())
    for number in range(NUM_CUTS):
        moment = 0.05 + number * RUN_S / NUM_CUTS
        world = await make_world(tmp_path / str(number), **frequencies)
        first = asyncio.create_task(world.drive(owner="first"))
        await asyncio.sleep(moment)
        if not killed:
            first.cancel()
            await asyncio.wait({first})
        head = await world.drive(owner="second")
        await asyncio.wait({first})
        if not first.cancelled():
            first.exception()
        assert without_folders(head) == expected, f"cut at {moment} s"
        assert world.stages.learner.trained == undisturbed.stages.learner.trained
        steps = [line["step"] for line in await world.store.runs.history(RUN) if line["kind"] == "step"]
        assert steps == [0, 1, 2], f"cut at {moment} s"
