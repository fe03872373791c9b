"""The stages of one RLHF step, in flow order: the single source for routes, manifests and metric labels."""

from enum import StrEnum


class Stage(StrEnum):
    """One stage of the step. The value is the folder under ``functions/``, the Service name and the route."""

    PREFILL = "prefill"
    ROLLOUT = "rollout"
    REWARD = "reward"
    REFERENCE = "reference"
    CRITIC = "critic"
    LEARNER = "learner"

    @property
    def route(self) -> str:
        """Path of the stage's call on its function."""
        return f"/v1/{self.value}"


class Purpose(StrEnum):
    """Why a call is made. Every purpose has keys, randomness and a ledger line of its own."""

    INIT = "init"
    """Publish version 0 of the policy from the configured model."""
    TRAIN = "train"
    EVAL = "eval"
