"""The learner's process samples too: one actor beside the learner, the other in rollout's own function, same tokens."""

from typing import Any

import pytest

from controller.runs.state import RunState
from shared.contracts.stage import Purpose
from tests.e2e.in_process import Finished, Parts
from tests.e2e.workspace import Workspace

pytestmark = pytest.mark.asyncio(loop_scope="package")

NUM_STEPS = 2


def config_of(workspace: Workspace) -> dict[str, Any]:
    return workspace.config(
        {
            "data.val_files": None,
            "data.max_response_length": 24,
            "rollout.num_actors": 2,
            "trainer.total_training_steps": NUM_STEPS,
        }
    )


def actors(run: Finished) -> dict[int, set[str]]:
    """The functions that sampled, by step of training."""
    functions: dict[int, set[str]] = {}
    for batch, completions in run.completions.items():
        assert batch.purpose is Purpose.TRAIN
        functions[batch.step] = {completion.instance.split("-")[0] for completion in completions.values()}
    return functions


async def test_one_actor_samples_beside_the_learner_and_the_tokens_are_the_same(
    parts: Parts, workspace: Workspace
) -> None:
    apart = await parts.run(config_of(workspace))
    assert set().union(*actors(apart).values()) == {"rollout"}
    manifest = parts.settings.manifests / "learner.yaml"
    original = manifest.read_text()
    manifest.write_text(original.replace("value: learner\n", "value: learner,prefill,rollout\n"))
    assert manifest.read_text() != original
    parts.platform.apply_manifests()
    try:
        beside = await parts.run(config_of(workspace))
    finally:
        manifest.write_text(original)
        parts.platform.apply_manifests()
    assert beside.record.state == RunState.SUCCEEDED, beside.record.info
    # Work that waits is stolen, so either may sample everything of a step; the learner's process has a part of the run.
    assert "learner" in set().union(*actors(beside).values())
    assert beside.tokens() == apart.tokens()
