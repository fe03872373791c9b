import pytest
import torch

from functions.learner.metrics import batch_metrics, critic_metrics, reward_metrics
from shared.training.metric_sums import MetricSums
from tests.unit.functions.learner.builders import make_row


def test_parts_of_different_size_give_the_mean_of_the_whole() -> None:
    sums = MetricSums()
    sums.add({"x": 1.0 + 2.0 + 3.0}, 3)
    sums.add({"x": 10.0}, 1)

    assert sums.reduce() == {"x": 4.0}


def test_extremes_are_kept_even_below_zero() -> None:
    sums = MetricSums()
    for value in (-3.0, -1.0, -2.0):
        sums.add_maxima({"x": value})

    assert sums.reduce() == {"x": -1.0}


def test_a_mean_over_nothing_is_zero() -> None:
    sums = MetricSums()
    sums.add({"x": 0.0}, 0)

    assert sums.reduce() == {"x": 0.0}


def test_the_batch_is_described_by_verls_names() -> None:
    rows = [
        make_row("a", 0, prompt=(1,), completion=(1, 2, 3, 4), finish_reason="length"),
        make_row("a", 1, prompt=(1,), completion=(1, 2)),
        make_row("b", 0, prompt=(1, 2, 3), completion=(1,)),
    ]

    assert batch_metrics(rows, [1.0, 0.0, 0.5]) == {
        "critic/score/mean": 0.5,
        "critic/score/max": 1.0,
        "critic/score/min": 0.0,
        "prompt_length/mean": pytest.approx(5 / 3),
        "prompt_length/max": 3.0,
        "prompt_length/min": 1.0,
        "response_length/mean": pytest.approx(7 / 3),
        "response_length/max": 4.0,
        "response_length/min": 1.0,
        "response_length/clip_ratio": pytest.approx(1 / 3),
        "perf/total_num_tokens": 12.0,
    }


def test_what_was_made_of_the_scores_is_described_by_verls_names() -> None:
    assert reward_metrics([1.0, 0.0, 0.5], torch.tensor([2.0, 2.0, 2.0, 2.0, -1.0, 4.0])) == {
        "critic/rewards/mean": 0.5,
        "critic/rewards/max": 1.0,
        "critic/rewards/min": 0.0,
        "critic/advantages/mean": pytest.approx(11 / 6),
        "critic/advantages/max": 4.0,
        "critic/advantages/min": -1.0,
    }


def test_a_completion_that_ends_in_its_last_token_is_not_clipped() -> None:
    rows = [make_row("a", 0, completion=(1, 2)), make_row("a", 1, completion=(1, 2))]

    assert batch_metrics(rows, [0.0, 0.0])["response_length/clip_ratio"] == 0.0


def test_a_batch_without_trained_tokens_has_zeros() -> None:
    assert reward_metrics([0.0], torch.zeros(0))["critic/advantages/mean"] == 0.0
    assert critic_metrics(torch.zeros(0), torch.zeros(0))["critic/vf_explained_var"] == 0.0


@pytest.mark.parametrize(
    ("values", "explained"), [([1.0, 2.0, 4.0], 1.0), ([7.0, 7.0, 7.0], 0.0), ([-1.0, -2.0, -4.0], -3.0)]
)
def test_a_critic_is_judged_by_what_it_explains(values: list[float], explained: float) -> None:
    metrics = critic_metrics(torch.tensor(values), torch.tensor([1.0, 2.0, 4.0]))

    assert metrics["critic/vf_explained_var"] == pytest.approx(explained)
    assert metrics["critic/values/mean"] == pytest.approx(sum(values) / 3)
    assert metrics["critic/returns/max"] == 4.0


def test_returns_that_are_all_equal_explain_nothing() -> None:
    assert critic_metrics(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]))["critic/vf_explained_var"] == 0.0
