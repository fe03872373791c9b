import pytest

from functions.learner.ranks.group import ONE_RANK
from functions.learner.ranks.reduction import reduced
from shared.training.metric_sums import MetricSums
from tests.unit.functions.learner.ranks.thread_ranks import ThreadRanks, on_all_ranks

PARTS = [
    (MetricSums({"kl": (3.0, 2.0), "entropy": (1.0, 2.0)}, {"gap": 0.5}), {"loss": 1.5}),
    (MetricSums({"entropy": (5.0, 8.0), "kl": (1.0, 8.0)}, {"gap": 0.75}), {"loss": -4.0}),
    (MetricSums({"kl": (0.0, 0.0), "entropy": (0.0, 0.0)}, {"gap": 0.0}), {"loss": 0.0}),
]


def test_a_mean_is_that_of_everything_together() -> None:
    def total(ranks: ThreadRanks) -> tuple[dict[str, float], dict[str, float]]:
        sums, terms = MetricSums(), {"loss": 10.0}
        reduced(ranks, *PARTS[ranks.rank]).add_to(sums, terms)
        return sums.reduce(), terms

    for metrics, terms in on_all_ranks(3, total):
        assert metrics == pytest.approx({"kl": 0.4, "entropy": 0.6, "gap": 0.75})
        assert terms == {"loss": 7.5}


def test_rounds_add_up_and_one_rank_is_its_own_sum() -> None:
    sums, terms = MetricSums(), {}
    for part in PARTS:
        reduced(ONE_RANK, *part).add_to(sums, terms)

    assert sums.reduce() == pytest.approx({"kl": 0.4, "entropy": 0.6, "gap": 0.75})
    assert terms == {"loss": -2.5}
