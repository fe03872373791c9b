"""Functions of which nothing runs, by the manifests of the repository."""

import pytest

from controller.platforms.base import FunctionUnreachable
from controller.platforms.local.platform import FIGURES
from controller.platforms.local.unstarted import UnstartedPlatform
from controller.settings import REPOSITORY
from shared.contracts.stage import Stage


@pytest.fixture
def platform() -> UnstartedPlatform:
    return UnstartedPlatform(REPOSITORY / "deploy" / "base" / "functions")


async def test_every_stage_has_its_function_and_none_a_replica(platform: UnstartedPlatform) -> None:
    functions = await platform.functions()
    assert {stage for function in functions for stage in function.stages} == set(Stage)
    [rollout] = [function for function in functions if Stage.ROLLOUT in function.stages]
    assert (rollout.max_scale, rollout.num_ready) == (8, 0)
    assert not await platform.replicas()
    assert platform.figures() is FIGURES


async def test_nothing_can_be_called(platform: UnstartedPlatform) -> None:
    with pytest.raises(FunctionUnreachable, match="no function is started"):
        await platform.invoke(Stage.ROLLOUT, "/v1/info", b"", headers={}, timeout_s=1.0)
