import pytest
import torch

from shared.modeling.device import compute_device


@pytest.mark.parametrize(("has_gpu", "kind"), [(True, "cuda"), (False, "cpu")])
def test_a_gpu_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch, has_gpu: bool, kind: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert compute_device().type == kind
