"""A run whose steps take long enough to be disturbed, and what it comes to when nobody disturbs it."""

from dataclasses import dataclass
from typing import Any

from tests.e2e.api import Api
from tests.e2e.weights import TOLERANCE, Weights, checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

NUM_STEPS = 3
NUM_TOKENS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """The run's config and its weights after the last step."""

    config: dict[str, Any]
    weights: Weights

    def assert_same(self, api: Api, run: str) -> None:
        """The run has each step once, each with its whole batch and no more, and ended with the same weights."""
        steps = api.history(run, "step")
        assert [line["step"] for line in steps] == list(range(NUM_STEPS))
        assert {line["metrics"]["perf/total_num_tokens"] for line in steps} == {16 * (4 + NUM_TOKENS)}
        found = read_weights(checkpoint_folder(api, run, NUM_STEPS))
        assert largest_difference(found, self.weights) <= TOLERANCE


def long_config(workspace: Workspace) -> dict[str, Any]:
    """Each actor samples two groups, one after the other; the learner makes several updates."""
    return workspace.config(
        {
            "data.max_response_length": NUM_TOKENS,
            "data.shuffle": False,
            "rollout.ignore_eos": True,
            "rollout.max_num_seqs": 4,
            "actor.ppo_mini_batch_size": 1,
            "actor.ppo_epochs": 2,
            "trainer.total_training_steps": NUM_STEPS,
        }
    )
