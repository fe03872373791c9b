"""What is taken down of the requests by either way."""

from controller.platforms.local.autoscaler import Load
from controller.platforms.local.load_meter import LoadMeter
from controller.platforms.local.scaling_spec import ScalingSpec

SCRAPED = ScalingSpec(target_burst_capacity=211, window_s=6)
ALWAYS_PROXIED = ScalingSpec(target_burst_capacity=-1, window_s=6)


def test_the_activators_first_request_is_taken_down_at_once() -> None:
    meter = LoadMeter(SCRAPED, 0.0)
    assert meter.load(0.1) is None
    assert meter.request_in(0.2, by_activator=True)
    assert not meter.request_in(0.2, by_activator=True)
    assert meter.load(0.3) == Load(stable=1.0, panic=1.0)


def test_requests_that_pass_the_activator_by_are_reported_by_the_replicas() -> None:
    meter = LoadMeter(SCRAPED, 0.0)
    assert not meter.request_in(0.0, by_activator=False)
    assert meter.load(0.5) is None
    assert meter.report(1.0, num_ready=1)
    assert meter.load(1.0) == Load(stable=1.0, panic=1.0)
    meter.request_out(1.5, by_activator=False)
    assert meter.report(2.0, num_ready=1)
    assert meter.load(2.0) == Load(stable=0.75, panic=0.5)


def test_both_ways_are_added_up() -> None:
    meter = LoadMeter(SCRAPED, 0.0)
    meter.request_in(0.0, by_activator=False)
    meter.request_in(0.0, by_activator=True)
    meter.report(1.0, num_ready=1)
    meter.report(2.0, num_ready=1)
    # 1 at once; then the replicas' 1 alone, as the activator's was reported already; then both.
    assert meter.load(2.0) == Load(stable=1.333333, panic=2.0)


def test_idle_replicas_report_that_they_are_idle() -> None:
    meter = LoadMeter(SCRAPED, 0.0)
    meter.request_in(0.0, by_activator=True)
    meter.request_out(1.0, by_activator=True)
    for second in (1.0, 2.0, 3.0):
        meter.report(second, num_ready=1)
    assert meter.load(3.0) == Load(stable=0.25, panic=0.0)


def test_where_the_activator_alone_reports_the_average_stands_in_silence() -> None:
    meter = LoadMeter(ALWAYS_PROXIED, 0.0)
    assert meter.load(0.0) == Load(stable=0.0, panic=0.0)
    meter.request_in(0.0, by_activator=True)
    for second in (1.0, 2.0):
        meter.report(second, num_ready=1)
    meter.request_out(2.0, by_activator=True)
    for second in (3.0, 4.0, 5.0):
        assert not meter.report(second, num_ready=1)
    assert [meter.load(now) for now in (3.0, 4.0, 5.0)] == [Load(stable=0.666667, panic=0.0)] * 3
    assert meter.load(9.0) == Load(stable=0.0, panic=0.0)


def test_other_windows_from_now_on() -> None:
    meter = LoadMeter(SCRAPED, 0.0)
    meter.request_in(0.0, by_activator=False)
    meter.report(1.0, num_ready=1)
    meter.follow(ScalingSpec(target_burst_capacity=-1, window_s=60))
    meter.request_out(1.0, by_activator=False)
    assert meter.load(50.0) == Load(stable=1.0, panic=0.0)
