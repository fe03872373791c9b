"""How many replicas for one step, how fast, and how long they stay: these functions against a model of Knative.

The figures are those of a discrete-event port of Knative 1.23's autoscaler and activator (200 random phases): 0 to N
with N requests at once, and 8 equal requests. A pod's start is not counted. Here fewer phases are tried.
"""

import asyncio
import math
import statistics
from random import Random

import pytest

from controller.platforms.simulated.clock import run_virtual
from tests.simulation.knative.cluster import cluster, function
from tests.simulation.knative.paced_pods import PacedPods

RHYTHMS = range(8)
FULL_USE = {"target_utilization_percentage": "100"}
STEP = {**FULL_USE, "max_scale": "8", "activation_scale": "8"}
BEHIND_ACTIVATOR = {"target_burst_capacity": "-1"}


async def rise(number: int, seed: int, annotations: dict[str, str]) -> tuple[float, int]:
    """Seconds until so many replicas are asked for, and how many are in the end."""
    async with cluster(function(**annotations), pods=PacedPods(start_s=10.0), seed=seed, drain_s=0.0) as at:
        began = at.now
        requests = [at.send(60.0) for _ in range(number)]
        await asyncio.sleep(9.0)
        scheduled = sorted(life.scheduled_at - began for life in at.lives())
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        return scheduled[number - 1], len(scheduled)


@pytest.mark.parametrize(
    ("annotations", "number", "median_s", "latest_s", "num_asked"),
    [
        ({}, 4, 1.5, 3.8, 6),
        ({}, 16, 1.5, 3.8, 23),
        ({}, 32, 1.5, 4.8, 46),
        ({**FULL_USE, "max_scale": "N"}, 4, 1.5, 5.8, 4),
        ({**FULL_USE, "max_scale": "N"}, 16, 1.6, 7.8, 16),
        ({**FULL_USE, "max_scale": "N"}, 32, 2.4, 7.9, 32),
        ({**FULL_USE, "max_scale": "N", "window": "6s"}, 16, 1.6, 7.0, 16),
        ({**FULL_USE, "max_scale": "N", "window": "6s"}, 32, 2.2, 7.0, 32),
    ],
)
def test_from_zero_to_n(
    annotations: dict[str, str], number: int, median_s: float, latest_s: float, num_asked: int
) -> None:
    given = {key: value.replace("N", str(number)) for key, value in annotations.items()}
    results = [run_virtual(rise(number, seed, given)) for seed in RHYTHMS]
    assert {asked for _, asked in results} == {num_asked}
    if not annotations:
        assert num_asked == math.ceil(number / 0.7)
    times = [time for time, _ in results]
    assert max(times) <= latest_s + 0.2
    # Where the first report falls into the second in which the requests came, one tick is enough; else it takes up to
    # eight seconds until no average holds the first message any more. So a median lies with the quick or the slow ones.
    assert min(times) <= 2.0
    assert statistics.median(times) <= median_s + 1.0


@pytest.mark.parametrize("number", [4, 32])
def test_activation_scale_asks_for_all_at_once(number: int) -> None:
    annotations = {**FULL_USE, "max_scale": str(number), "activation_scale": str(number)}
    for seed in RHYTHMS:
        assert run_virtual(rise(number, seed, annotations)) == (pytest.approx(0.0, abs=0.01), number)


async def fall(seed: int, annotations: dict[str, str]) -> tuple[float, float]:
    """Seconds after the last answer until the first and until the last replica goes."""
    async with cluster(function(**annotations), pods=PacedPods(start_s=3.0), seed=seed, drain_s=0.0) as at:
        await asyncio.gather(*(at.send(120.0) for _ in range(8)))
        answered = at.now
        await asyncio.sleep(600.0)
        gone = sorted(life.draining_at - answered for life in at.lives() if life.draining_at is not None)
        assert at.num_pods() == 0
        return gone[0], gone[-1]


@pytest.mark.parametrize(
    ("annotations", "first_s", "first_off_s", "zero_s", "zero_off_s"),
    [
        # The requests begin, and so end, some seconds apart: the first replica may go soon after the last answer.
        ({}, 4.0, 3.5, 64.0, 1.5),
        (STEP, 61.0, 1.5, 70.0, 1.5),
        ({**STEP, **BEHIND_ACTIVATOR, "window": "15s"}, 16.0, 1.5, 25.0, 1.5),
        ({**STEP, **BEHIND_ACTIVATOR, "window": "6s"}, 7.0, 1.5, 16.0, 1.5),
        (
            {**STEP, **BEHIND_ACTIVATOR, "window": "6s", "scale_to_zero_pod_retention_period": "120s"},
            *(7.0, 1.5, 133.0, 1.5),
        ),
        # The model loses about one more tick with each of the four halvings.
        ({**STEP, **BEHIND_ACTIVATOR, "window": "6s", "scale_down_delay": "120s"}, 127.0, 3.5, 495.0, 9.0),
    ],
)
def test_time_to_zero(
    annotations: dict[str, str], first_s: float, first_off_s: float, zero_s: float, zero_off_s: float
) -> None:
    for seed in RHYTHMS:
        first, last = run_virtual(fall(seed, annotations))
        assert first == pytest.approx(first_s, abs=first_off_s)
        assert last == pytest.approx(zero_s, abs=zero_off_s)


async def stragglers(seed: int, annotations: dict[str, str]) -> int:
    """Busy replicas that were taken while 8 requests of 60 to 600 s ended one by one."""
    async with cluster(function(**annotations), seed=seed) as at:
        durations = [60.0 + 540.0 * index / 7 for index in range(8)]
        Random(seed).shuffle(durations)
        requests = [at.send(duration_s) for duration_s in durations]
        await asyncio.gather(*requests)
        await asyncio.sleep(200.0)
        # An idle one drains for 30 s and no longer.
        lasted = [life.ended_at - life.draining_at for life in at.lives() if life.ended_at and life.draining_at]
        return sum(duration > 30.5 for duration in lasted)


@pytest.mark.parametrize(
    ("annotations", "mean"),
    [({}, 3.0), ({**FULL_USE, "max_scale": "8"}, 3.2), ({**FULL_USE, "max_scale": "8", "window": "6s"}, 4.0)],
)
def test_busy_replicas_are_taken_while_stragglers_work(annotations: dict[str, str], mean: float) -> None:
    """The model draws its victims among equals, here the newest goes: the means differ by one at most."""
    taken = [run_virtual(stragglers(seed, annotations)) for seed in RHYTHMS]
    assert statistics.mean(taken) == pytest.approx(mean, abs=1.0)


def test_activation_scale_spares_the_busy() -> None:
    assert [run_virtual(stragglers(seed, STEP)) for seed in RHYTHMS] == [0] * len(RHYTHMS)
