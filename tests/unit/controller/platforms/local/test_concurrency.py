"""Reports and windows, on a clock that the tests hold."""

from hypothesis import given
from hypothesis import strategies as st

from controller.platforms.local.concurrency import BucketWindow, ConcurrencyReporter, ScrapedConcurrency


def test_the_first_request_is_reported_at_once_and_counted_once() -> None:
    reporter = ConcurrencyReporter()
    assert reporter.request_in(10.0) == 1.0
    assert reporter.request_in(10.0) is None
    assert reporter.report(11.0) == 1.0, "two requests on average, one was reported already"
    assert reporter.report(12.0) == 2.0


def test_an_average_weighs_by_time() -> None:
    reporter = ConcurrencyReporter()
    reporter.request_in(0.0)
    reporter.report(1.0)
    reporter.request_in(1.75)
    reporter.request_out(1.75)
    reporter.request_in(1.5 + 0.25)
    assert reporter.report(2.0) == 1.25


def test_silence_is_not_reported_and_wakes_anew() -> None:
    reporter = ConcurrencyReporter()
    assert reporter.report(1.0) is None
    reporter.request_in(2.0)
    reporter.request_out(2.5)
    assert reporter.report(3.0) == 0.0
    assert reporter.report(4.0) is None
    assert reporter.request_in(5.0) == 1.0


def test_replicas_report_in_silence_too() -> None:
    scraped = ScrapedConcurrency(10.0)
    scraped.request_in(10.5)
    assert scraped.report(11.0) == 0.5
    scraped.request_in(11.0)
    scraped.request_out(11.5)
    assert scraped.report(12.0) == 1.5
    scraped.request_out(12.0)
    assert [scraped.report(13.0), scraped.report(14.0)] == [0.0, 0.0]


def test_a_window_is_empty_after_as_much_silence() -> None:
    window = BucketWindow(6)
    assert window.is_empty(3.0)
    window.record(100.5, 0.0)
    assert not window.is_empty(105.9)
    assert window.is_empty(106.0)


def test_a_partly_written_window_is_divided_by_its_written_part() -> None:
    window = BucketWindow(60)
    window.record(100.2, 1)
    assert window.average(100.5) == 1
    window.record(101.2, 3)
    assert window.average(101.5) == 2


def test_after_the_last_request_the_average_stands_until_the_window_ends() -> None:
    window = BucketWindow(6)
    for second in range(6):
        window.record(100 + second, 4)
    assert [window.average(now) for now in (105, 107, 110)] == [4, 4, 4]
    assert window.average(111) == 0


def test_old_buckets_leave_the_window() -> None:
    window = BucketWindow(4)
    window.record(0, 8)
    for second in range(1, 5):
        window.record(second, 0)
    assert window.average(4) == 0


def test_it_starts_anew_after_a_window_of_silence() -> None:
    window = BucketWindow(4)
    window.record(0, 8)
    window.record(1, 8)
    window.record(20, 2)
    assert window.average(20) == 2


def test_a_resized_window_keeps_what_it_knows() -> None:
    window = BucketWindow(6)
    for second, value in enumerate([2, 4, 6]):
        window.record(second, value)
    window.resize(2)
    assert window.average(2) == 5
    assert window.average(4) == 0


@given(st.lists(st.floats(0, 50), min_size=1, max_size=40), st.integers(1, 10))
def test_the_average_is_the_mean_of_the_last_reports(reports: list[float], window_s: int) -> None:
    window = BucketWindow(window_s)
    for second, value in enumerate(reports):
        window.record(float(second), value)
    last = reports[-window_s:]
    assert abs(window.average(float(len(reports) - 1)) - sum(last) / len(last)) < 1e-5
