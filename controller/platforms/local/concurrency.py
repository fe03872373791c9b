"""How many requests a revision had, as Knative's activator and queue-proxies report it and its autoscaler averages it.

Sources: knative/serving ``pkg/activator/handler/concurrency_reporter.go``, ``pkg/queue/request_metric.go``,
``pkg/autoscaler/aggregation/bucketing.go``. No clock here.
Times are seconds on any clock that does not go back.
"""

import math

BUCKET_S = 1.0
"""Length of a bucket."""


class ConcurrencyReporter:
    """Requests in the function, waiting or served, as an average per report period."""

    def __init__(self) -> None:
        self.num_requests = 0
        self._area = 0.0
        self._period_start: float | None = None
        self._last_change = 0.0
        self._already_reported = 0.0

    def request_in(self, now: float) -> float | None:
        """A request has arrived. After a silent period the value to record at once: 1, which wakes the autoscaler."""
        first = self._period_start is None
        if first:
            self._period_start = self._last_change = now
            self._already_reported = 1.0
        self._advance(now)
        self.num_requests += 1
        return 1.0 if first else None

    def request_out(self, now: float) -> None:
        """A request has left, whatever its answer."""
        self._advance(now)
        self.num_requests -= 1

    def report(self, now: float) -> float | None:
        """Average concurrency since the last report, less what was reported at once; None in silence."""
        if self._period_start is None:
            return None
        self._advance(now)
        length = now - self._period_start
        average = self._area / length if length > 0 else float(self.num_requests)
        value = max(average - self._already_reported, 0.0)
        silent = average == 0 and self.num_requests == 0
        self._area, self._already_reported = 0.0, 0.0
        self._period_start = None if silent else now
        return None if silent else value

    def _advance(self, now: float) -> None:
        self._area += self.num_requests * (now - self._last_change)
        self._last_change = now


class ScrapedConcurrency:
    """Requests that went straight to the replicas, as an average per report period; silence is an average of 0."""

    def __init__(self, now: float) -> None:
        self._num_requests = 0
        self._area = 0.0
        self._period_start = self._last_change = now

    def request_in(self, now: float) -> None:
        """A request has arrived at a replica."""
        self._advance(now)
        self._num_requests += 1

    def request_out(self, now: float) -> None:
        """A request has left, whatever its answer."""
        self._advance(now)
        self._num_requests -= 1

    def report(self, now: float) -> float:
        """Average concurrency since the last report."""
        self._advance(now)
        length = now - self._period_start
        average = self._area / length if length > 0 else float(self._num_requests)
        self._area, self._period_start = 0.0, now
        return average

    def _advance(self, now: float) -> None:
        self._area += self._num_requests * (now - self._last_change)
        self._last_change = now


class BucketWindow:
    """Sums of reports per second over a sliding window, and their average over the seconds that were written.

    A window that is only partly written is divided by its written part; after a whole window of silence it starts anew.
    """

    def __init__(self, window_s: float) -> None:
        self._size = _num_buckets(window_s)
        self._sums: dict[int, float] = {}
        self._first_write = 0
        self._last_write: int | None = None

    def resize(self, window_s: float) -> None:
        """Look further back, or less far, at what has been recorded."""
        self._size = _num_buckets(window_s)

    def record(self, now: float, value: float) -> None:
        """Add a report to the bucket of this second."""
        bucket = int(now // BUCKET_S)
        if self._last_write is None or bucket - self._last_write >= self._size:
            self._sums = {}
            self._first_write = bucket
        self._sums[bucket] = self._sums.get(bucket, 0.0) + value
        self._last_write = bucket
        self._sums = {index: total for index, total in self._sums.items() if bucket - index < self._size}

    def is_empty(self, now: float) -> bool:
        """Whether nothing was recorded within the window."""
        return self._last_write is None or int(now // BUCKET_S) - self._last_write >= self._size

    def average(self, now: float) -> float:
        """Mean over the buckets of the window that have been written; 0 after a window of silence."""
        bucket = int(now // BUCKET_S)
        if self._last_write is None or bucket - self._last_write >= self._size:
            return 0.0
        silent = max(0, bucket - self._last_write)
        num_buckets = min(self._last_write - self._first_write + 1, self._size - silent)
        total = sum(value for index, value in self._sums.items() if bucket - index < self._size)
        return round(total / num_buckets, 6)


def _num_buckets(window_s: float) -> int:
    return max(1, math.ceil(window_s / BUCKET_S))
