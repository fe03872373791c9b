"""A run that nobody disturbs, to compare with: whatever happens to another on the way, its weights are the same."""

from dataclasses import dataclass
from typing import Any

from tests.e2e.api import Api
from tests.e2e.weights import TOLERANCE, Weights, checkpoint_folder, largest_difference, read_weights
from tests.e2e.workspace import Workspace

PROMPT_TOKENS = 4
NUM_COMPLETIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """The run's config and its weights after the last step."""

    config: dict[str, Any]
    weights: Weights

    @classmethod
    def of(cls, api: Api, config: dict[str, Any]) -> "ReferenceRun":
        """Run it."""
        run = api.succeed(config)
        num_steps = config["trainer"]["total_training_steps"]
        return cls(config=config, weights=read_weights(checkpoint_folder(api, run, num_steps)))

    def assert_same(self, api: Api, run: str) -> None:
        """The run has each step once, each with its whole batch and no more, and ended with the same weights."""
        num_steps = self.config["trainer"]["total_training_steps"]
        num_tokens = NUM_COMPLETIONS * (PROMPT_TOKENS + self.config["data"]["max_response_length"])
        steps = api.history(run, "step")
        assert [line["step"] for line in steps] == list(range(num_steps))
        assert {line["metrics"]["perf/total_num_tokens"] for line in steps} == {num_tokens}
        found = read_weights(checkpoint_folder(api, run, num_steps))
        assert largest_difference(found, self.weights) <= TOLERANCE


def short_config(workspace: Workspace) -> dict[str, Any]:
    """Two steps that are over at once."""
    return workspace.config({"data.shuffle": False, "rollout.ignore_eos": True})


def long_config(workspace: Workspace) -> dict[str, Any]:
    """Steps of seconds: either actor samples two groups, one after the other; the learner makes several updates."""
    return workspace.config(
        {
            "data.max_response_length": 250,
            "data.shuffle": False,
            "rollout.ignore_eos": True,
            "rollout.max_num_seqs": 4,
            "rollout.num_actors": 2,
            "actor.ppo_mini_batch_size": 1,
            "actor.ppo_epochs": 2,
            "trainer.total_training_steps": 3,
        }
    )
