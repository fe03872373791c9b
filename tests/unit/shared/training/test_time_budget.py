import pytest

from shared.training.errors import UpdateTooLong
from shared.training.time_budget import Pace, TimeBudget


def budget(pace: Pace, *, remaining_s: float = 10.0, is_stopped: bool = False) -> TimeBudget:
    return TimeBudget(pace, lambda: remaining_s, lambda: is_stopped)


def test_what_was_never_measured_may_begin_even_late() -> None:
    assert budget(Pace(), remaining_s=-1.0).fits("training", 1000)


@pytest.mark.parametrize(("num_tokens", "fits"), [(3, True), (4, False)])
def test_a_pass_with_gradient_is_known_from_one_without(num_tokens: int, fits: bool) -> None:
    assert budget(Pace(s_per_token={"scoring": 1.0})).fits("training", num_tokens) is fits
    assert budget(Pace(s_per_token={"training": 9.0})).fits("scoring", num_tokens) is fits


@pytest.mark.parametrize(("num_tokens", "fits"), [(40, True), (41, False)])
def test_computing_and_storing_must_end_in_time(num_tokens: int, fits: bool) -> None:
    pace = Pace(s_per_token={"training": 0.2}, store_s=2.0)
    assert budget(pace).fits("training", num_tokens) is fits


def test_a_stopped_call_goes_no_further() -> None:
    assert not budget(Pace(), is_stopped=True).fits("training", 1)


def test_the_pace_is_that_of_the_latest_micro_batch_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 8.0, 10.0, 11.0, 20.0, 26.0, 30.0, 35.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    pace = Pace()
    for kind, num_tokens in (("training", 2), ("scoring", 10), ("training", 3)):
        with budget(pace).measure(kind, num_tokens):
            pass
    with pace.storing():
        pass
    assert pace == Pace(s_per_token={"training": 2.0, "scoring": 0.1}, store_s=5.0)


def test_a_micro_batch_that_fails_teaches_nothing() -> None:
    pace = Pace()
    with pytest.raises(ValueError, match="broken"), budget(pace).measure("training", 1):
        raise ValueError("broken")
    assert pace == Pace()


def test_no_time_for_a_micro_batch_twice_in_a_row_is_no_time_ever() -> None:
    pace = Pace(s_per_token={"scoring": 0.1}, store_s=2.0)
    for num_idle in (0, 1):
        pace.refuse_endless(num_idle, "scoring", 50, UpdateTooLong, setting="a.key", stage="learner")
    with pytest.raises(UpdateTooLong, match=r"50 tokens take about 5 s here, .*the result 2 s.*a\.key.*of the learner"):
        pace.refuse_endless(2, "scoring", 50, UpdateTooLong, setting="a.key", stage="learner")
