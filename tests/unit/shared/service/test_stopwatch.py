"""The stopwatch adds up."""

import contextlib
import time

from shared.service.stopwatch import Stopwatch


def test_stretches_add_up_by_kind_also_those_that_fail() -> None:
    watch = Stopwatch()
    with watch.measure("load"):
        time.sleep(0.002)
    with watch.measure("compute"):
        time.sleep(0.002)
    with contextlib.suppress(ZeroDivisionError), watch.measure("compute"):
        time.sleep(0.002)
        raise ZeroDivisionError
    assert watch.load_s >= 0.002
    assert watch.compute_s >= 0.004
    assert watch.store_s == 0
