from collections.abc import Iterator

import pytest
import torch

from functions.learner.determinism import WORKSPACE, use_deterministic_algorithms
from shared.service.settings import SettingsInvalid


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("has_gpu", "workspace"), [(False, ""), (True, ":4096:8"), (True, ":16:8")])
def test_torch_is_told(monkeypatch: pytest.MonkeyPatch, has_gpu: bool, workspace: str) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_gpu)
    use_deterministic_algorithms({WORKSPACE: workspace})
    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("environment", [{}, {WORKSPACE: ":0:0"}])
def test_what_would_not_be_deterministic_is_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(SettingsInvalid, match=f"RLHFLESS_DETERMINISTIC .* {WORKSPACE}"):
        use_deterministic_algorithms(environment)
    assert not torch.are_deterministic_algorithms_enabled()
