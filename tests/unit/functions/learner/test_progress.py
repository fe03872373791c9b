import pytest
import torch

from functions.learner.progress import UpdateProgress
from shared.training.errors import DamagedState
from shared.training.metric_sums import MetricSums


def test_comes_back_exactly() -> None:
    sums = MetricSums({"a": (0.1 + 0.2, 3.0)}, {"b": 1e-17})
    progress = UpdateProgress(next_update=3, old_logprobs=torch.tensor([[-0.1, -2.0]]), sums=sums)

    restored = UpdateProgress.from_blob(progress.to_blob())

    assert restored.next_update == 3
    assert torch.equal(restored.old_logprobs, progress.old_logprobs)
    assert restored.sums == sums


def test_other_bytes_are_refused() -> None:
    with pytest.raises(DamagedState):
        UpdateProgress.from_blob(b"{}")
