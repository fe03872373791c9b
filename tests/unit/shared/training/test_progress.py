import pytest
import torch

from shared.training.errors import DamagedState
from shared.training.metric_sums import MetricSums
from shared.training.progress import KIND, UpdateProgress
from shared.training.state_blob import encode_state

PROGRESS = UpdateProgress(
    packing_plan=[[[2, 0], [1]], [[3]]],
    old_logprobs=torch.tensor([[-0.1, -2.0]]),
    num_scored=2,
    next_update=3,
    next_micro_batch=1,
    gradient={"a.weight": torch.tensor([1e-30, 3.0])},
    terms={"actor/pg_loss": 0.1 + 0.2},
    sums=MetricSums({"a": (0.1 + 0.2, 3.0)}, {"b": 1e-17}),
)


def test_comes_back_exactly() -> None:
    restored = UpdateProgress.from_blob(PROGRESS.to_blob())

    assert torch.equal(restored.old_logprobs, PROGRESS.old_logprobs)
    assert torch.equal(restored.gradient["a.weight"], PROGRESS.gradient["a.weight"])
    for name in ("packing_plan", "num_scored", "next_update", "next_micro_batch", "terms", "sums"):
        assert getattr(restored, name) == getattr(PROGRESS, name), name


def test_equal_progress_gives_equal_bytes() -> None:
    assert UpdateProgress.from_blob(PROGRESS.to_blob()).to_blob() == PROGRESS.to_blob()


def test_the_beginning_comes_back() -> None:
    assert UpdateProgress.from_blob(UpdateProgress().to_blob()) == UpdateProgress()


def test_a_branch_does_not_move_its_origin() -> None:
    before = PROGRESS.to_blob()
    branch = PROGRESS.branch()
    branch.sums.add({"a": 1.0}, 1)
    branch.sums.add_maxima({"b": 2.0})
    branch.terms["actor/pg_loss"] = branch.next_update = 9
    branch.gradient.clear()

    assert PROGRESS.to_blob() == before


@pytest.mark.parametrize("blob", [b"{}", encode_state(KIND, {}, {}), encode_state(KIND, {}, {"sums": 1, "maxima": {}})])
def test_other_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(DamagedState):
        UpdateProgress.from_blob(blob)
