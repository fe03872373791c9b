"""The update does not depend on the number of ranks: ragged lengths, ranks without rows, cuts and all metrics."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.optim import AdamW
from transformers import PreTrainedModel

from functions.learner.config import LearnerConfig
from functions.learner.rows import TrainRow
from functions.learner.update import UpdateResult, update_policy
from shared.training.optimizer import build_optimizer
from tests.unit.functions.learner.builders import make_config, ragged_rows, tiny_model, with_numbers
from tests.unit.functions.learner.learner import Passes
from tests.unit.functions.learner.ranks.thread_ranks import ThreadRanks, on_all_ranks

# The clip would see a rank's own gradient here, where no FSDP sums it up before.
CONFIG = make_config(
    ppo_epochs=2, ppo_mini_batch_size=3, max_token_len=25, max_grad_norm=None, eps=1e-2, kl_loss_type="low_var_kl"
)
Updated = tuple[torch.Tensor, UpdateResult]


def summing(optimizer: AdamW, ranks: ThreadRanks) -> AdamW:
    """The optimizer applied to the sum of the ranks' gradients, as FSDP hands it over."""
    step: Callable[[], Any] = optimizer.step

    def step_on_sum() -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = ranks.total(parameter.grad)
        step()

    optimizer.step = step_on_sum  # type: ignore[method-assign]  # what the ranks' model does elsewhere
    return optimizer


def update(rows: list[TrainRow], config: LearnerConfig, num_ranks: int, **options: Any) -> list[Updated]:
    """What every rank has afterwards."""

    def one(ranks: ThreadRanks) -> Updated:
        model: PreTrainedModel = tiny_model_of_rank()
        optimizer = summing(build_optimizer(model, config), ranks)
        result = update_policy(model, optimizer, rows, config, 0, ranks=ranks, **options)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), result

    state = tiny_model().state_dict()

    def tiny_model_of_rank() -> PreTrainedModel:
        model = tiny_model()
        model.load_state_dict(state)
        return model

    return on_all_ranks(num_ranks, one)


def exact(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "actor/grad_norm"}


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_weights_and_metrics_are_those_of_one_rank(num_ranks: int) -> None:
    rows = with_numbers(ragged_rows(num_groups=5), "reference_logprobs")
    [(expected, one)] = update(rows, CONFIG, 1)
    results = update(rows, CONFIG, num_ranks)

    for weights, result in results:
        assert torch.equal(weights, results[0][0])
        torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
        assert exact(result.metrics) == pytest.approx(exact(one.metrics), rel=1e-5, abs=1e-7)
        assert result.packing_plan is not None
        assert all(len(mini_batch) >= num_ranks for mini_batch in result.packing_plan)
    assert not torch.equal(expected, torch.cat([p.detach().flatten() for p in tiny_model().parameters()]))


def test_a_rank_without_rows_changes_nothing() -> None:
    rows = ragged_rows(num_groups=1, group_size=2)
    config = replace(CONFIG, loss=make_config().loss, ppo_mini_batch_size=0)
    [(expected, one)] = update(rows, config, 1)
    results = update(rows, config, 4)

    assert [len(mini_batch) for mini_batch in results[0][1].packing_plan or []] == [2]
    for weights, result in results:
        torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
        assert exact(result.metrics) == pytest.approx(exact(one.metrics), rel=1e-5, abs=1e-7)


def test_all_ranks_stop_where_the_first_one_does() -> None:
    rows = ragged_rows(num_groups=5)
    config = replace(CONFIG, loss=make_config().loss)

    def one(ranks: ThreadRanks) -> UpdateResult:
        model = tiny_model()
        budget = Passes(3) if ranks.rank == 0 else Passes(10_000)
        optimizer = summing(build_optimizer(model, config), ranks)
        return update_policy(model, optimizer, rows, config, 0, ranks=ranks, budget=budget)

    results = on_all_ranks(2, one)
    assert len({result.num_passes for result in results}) == 1
    assert all(result.progress is not None for result in results)
