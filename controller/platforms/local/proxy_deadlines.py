"""When a request has taken too long. Pure; times are seconds of the loop."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Knative's three limits. The first two count from the arrival, so the queue and a cold start are in them."""

    arrival: float
    timeout_s: float
    """Whole request."""
    response_start_timeout_s: float
    """To the first byte of the answer; 0: no limit."""
    idle_timeout_s: float
    """Without a byte of the answer, from the arrival on; 0: no limit."""

    @property
    def for_first_byte(self) -> float:
        """When the answer has to have begun."""
        limits_s = (self.timeout_s, self.response_start_timeout_s, self.idle_timeout_s)
        return self.arrival + min(limit_s for limit_s in limits_s if limit_s)

    def for_next_byte(self, now: float) -> float:
        """When the answer has to have gone on, after a byte of it now."""
        end = self.arrival + self.timeout_s
        return min(end, now + self.idle_timeout_s) if self.idle_timeout_s else end
