"""The load of one revision: what its activator and its replicas report, and the windows that average it. No clock."""

from controller.platforms.local.autoscaler import Load
from controller.platforms.local.concurrency import BucketWindow, ConcurrencyReporter, ScrapedConcurrency
from controller.platforms.local.scaling_spec import ScalingSpec


class LoadMeter:
    """Counts the requests of a revision from one moment on."""

    def __init__(self, spec: ScalingSpec, now: float) -> None:
        self._spec = spec
        self._activator = ConcurrencyReporter()
        self._replicas = ScrapedConcurrency(now)
        self._stable = BucketWindow(spec.window_s)
        self._panic = BucketWindow(spec.panic_window_s)

    def follow(self, spec: ScalingSpec) -> None:
        """Average over other windows from now on."""
        self._spec = spec
        self._stable.resize(spec.window_s)
        self._panic.resize(spec.panic_window_s)

    def request_in(self, now: float, *, by_activator: bool) -> bool:
        """A request has arrived. True where it is the first in a while, which the activator reports at once."""
        if not by_activator:
            self._replicas.request_in(now)
            return False
        first = self._activator.request_in(now)
        if first is not None:
            self._record(now, first)
        return first is not None

    def request_out(self, now: float, *, by_activator: bool) -> None:
        """A request has left by the way it came."""
        if by_activator:
            self._activator.request_out(now)
        else:
            self._replicas.request_out(now)

    def report(self, now: float, *, num_ready: int) -> bool:
        """Once a second: take down what activator and replicas have seen. True where they have seen requests."""
        reported = self._activator.report(now)
        straight = self._replicas.report(now)
        if self._spec.is_scraped and num_ready:
            reported = (reported or 0.0) + straight
        if reported is not None:
            self._record(now, reported)
        return bool(reported)

    def load(self, now: float) -> Load | None:
        """The averages; None where replicas should have reported and nobody has."""
        if self._spec.is_scraped and self._stable.is_empty(now):
            return None
        return Load(stable=self._stable.average(now), panic=self._panic.average(now))

    def _record(self, now: float, concurrency: float) -> None:
        self._stable.record(now, concurrency)
        self._panic.record(now, concurrency)
