from pathlib import Path

import pytest

from functions.learner.ranks.size import num_ranks
from shared.service.settings import FunctionSettings, SettingsInvalid


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("a-token-of-enough-characters")
    return {"RLHFLESS_STAGES": "learner", "RLHFLESS_TOKEN_FILE": str(tmp_path / "token")}


@pytest.mark.parametrize(
    ("asked", "num_gpus", "expected"), [("", 0, 1), ("", 4, 4), ("2", 4, 2), ("3", 0, 3), ("1", 1, 1)]
)
def test_a_rank_per_gpu_unless_set(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, asked: str, num_gpus: int, expected: int
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
    assert num_ranks(FunctionSettings.from_environment(environment | {"RLHFLESS_NUM_RANKS": asked})) == expected


def test_two_ranks_never_share_a_gpu(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    settings = FunctionSettings.from_environment(environment | {"RLHFLESS_NUM_RANKS": "4"})
    with pytest.raises(SettingsInvalid, match="RLHFLESS_NUM_RANKS is 4: this replica has 2 GPUs"):
        num_ranks(settings)
