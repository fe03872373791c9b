"""The reward that a process serves in V2, from its environment."""

import pytest

from functions.reward.settings import V2Settings
from shared.contracts.policy import ModelRef
from shared.contracts.reward import ModelReward
from shared.service.settings import SettingsInvalid

MODEL = '{"kind": "model", "model": {"path": "/mnt/models"}}'


def test_nothing_is_set_by_default() -> None:
    assert V2Settings.from_environment({}) == V2Settings(model=None, reward=None, threads=1)


def test_a_reward_has_a_name() -> None:
    settings = V2Settings.from_environment(
        {"RLHFLESS_V2_MODEL": "judge", "RLHFLESS_V2_REWARD": MODEL, "RLHFLESS_V2_THREADS": "4"}
    )
    assert settings == V2Settings(model="judge", reward=ModelReward(model=ModelRef(path="/mnt/models")), threads=4)


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"RLHFLESS_V2_MODEL": "judge"}, "go together"),
        ({"RLHFLESS_V2_REWARD": MODEL}, "go together"),
        ({"RLHFLESS_V2_MODEL": "a/b", "RLHFLESS_V2_REWARD": MODEL}, "RLHFLESS_V2_MODEL is 'a/b'"),
        ({"RLHFLESS_V2_MODEL": "judge", "RLHFLESS_V2_REWARD": "{"}, "RLHFLESS_V2_REWARD is no reward"),
        ({"RLHFLESS_V2_MODEL": "judge", "RLHFLESS_V2_REWARD": '{"kind": "model"}'}, "at model.model: Field required"),
        ({"RLHFLESS_V2_THREADS": "0"}, "RLHFLESS_V2_THREADS is '0'"),
    ],
)
def test_what_is_refused(env: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsInvalid, match=why):
        V2Settings.from_environment(env)
