"""Whatever goes wrong, a run comes to the end that it comes to undisturbed."""

import asyncio
from pathlib import Path

import pytest

from shared.contracts.completion import SampleId
from shared.contracts.stage import Purpose, Stage
from tests.fakes.stack import Stack, make_stack
from tests.fakes.virtual import in_virtual_time
from tests.simulation.scenario import Misfortune, draw_scenario, flaky_functions

ENDED = ("failed", "cancelled", "succeeded")
MAX_RESUMES = 12
Trained = dict[int, dict[SampleId, tuple[int, ...]]]


async def finish(stack: Stack, run: str) -> None:
    """Wait for success; what failed or was cancelled on the way is resumed, as a user would."""
    for _ in range(MAX_RESUMES):
        record = await stack.until(run, *ENDED)
        if record.state == "succeeded":
            return
        await asyncio.sleep(5)
        living = [each for each in stack.controllers if not each.task.done()]
        await living[-1].service.resume(run)
    raise AssertionError(f"{run} was resumed {MAX_RESUMES} times and is {record.state}: {record.info['error']}")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Trained]:
    """Weights at the end, and the completions of each step."""
    found: list[tuple[str, Trained]] = []

    @in_virtual_time
    async def drive() -> None:
        stack = await make_stack(tmp_path_factory.mktemp("undisturbed"))
        run = await stack.submit(await stack.start())
        await stack.until(run, "succeeded")
        found.append(((await stack.head(run)).policy.digest, stack.stages.learner.trained))
        await stack.stop()

    drive()
    return found[0]


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 200))])
@in_virtual_time
async def test_the_end_does_not_depend_on_what_went_wrong(
    tmp_path: Path, undisturbed: tuple[str, Trained], seed: int
) -> None:
    scenario = draw_scenario(seed)
    stack = await make_stack(
        tmp_path,
        specs=scenario.specs,
        wrapped=flaky_functions(seed, scenario.error_rate),
        s_per_token=scenario.s_per_token,
    )
    run = await stack.submit(await stack.start(), rollout__num_actors=scenario.num_actors)
    misfortune = Misfortune(stack, run, seed)
    striking = asyncio.create_task(misfortune.strike(scenario.faults))
    await finish(stack, run)
    striking.cancel()
    await asyncio.wait({striking})
    stack.outage.is_on = False

    story = f"{scenario} {misfortune.suffered}"
    digest, trained = undisturbed
    head = await stack.head(run)
    assert stack.stages.learner.trained == trained, story
    assert head.policy.digest == digest, story
    assert [len(step) for step in trained.values()] == [8, 8, 8]

    history = await stack.store.runs.history(run)
    assert [line["step"] for line in history if line["kind"] == "step"] == [0, 1, 2], story
    assert [line["step"] for line in history if line["kind"] == "eval"] == [0, 3], story
    for purpose in (Purpose.TRAIN, Purpose.EVAL):
        for call in stack.stages.seen(Stage.ROLLOUT, purpose):
            assert call.policy is not None
            assert call.policy.version == call.key.step, story
    fences = [call.fence for call in stack.stages.calls if call.attempt == 0 and call.key.stage is Stage.LEARNER]
    assert fences == sorted(fences), story

    await stack.stop()
    await asyncio.sleep(120)
    assert await stack.num_replicas() == 0, story
