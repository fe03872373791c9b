"""What the platform grants a run."""

from dataclasses import replace

from controller.platforms.base import PlatformFigures
from controller.runs.resources import MAX_ACTORS_UNBOUNDED, resources_of
from controller.scheduling.observations import Resources
from shared.contracts.stage import Stage
from tests.fakes.planned import ROLLOUT

REWARD = replace(ROLLOUT, name="reward", stages=(Stage.REWARD,), max_scale=2)


def test_the_manifest_bounds_the_actors_and_the_platform_says_whose_the_cores_are() -> None:
    cluster = resources_of((REWARD, ROLLOUT), PlatformFigures(), num_threads=4)
    assert cluster == Resources(num_threads=4, max_actors=8, shared_threads=False)
    assert resources_of((ROLLOUT,), PlatformFigures(shared_threads=True), num_threads=4).shared_threads


def test_without_a_maximum_there_is_one_all_the_same() -> None:
    for functions in ((REWARD,), (replace(ROLLOUT, max_scale=0),)):
        assert resources_of(functions, PlatformFigures(), num_threads=1).max_actors == MAX_ACTORS_UNBOUNDED
