"""How long to wait before a function that fails to start is started again. Pure."""

from dataclasses import dataclass, replace

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashBackoff:
    """Failures in a row before readiness. A replica that dies after it was ready is replaced at once."""

    num_failures: int = 0
    not_before: float = 0.0
    reason: str = ""

    def after_failure(self, now: float, reason: str) -> "CrashBackoff":
        """Another replica ended before it was ready: the wait doubles."""
        delay_s = min(MAX_DELAY_S, FIRST_DELAY_S * 2.0**self.num_failures)
        return replace(self, num_failures=self.num_failures + 1, not_before=now + delay_s, reason=reason)

    def waiting(self, now: float) -> str | None:
        """Why nothing may start now, or None."""
        if now >= self.not_before:
            return None
        return f"crash loop: {self.num_failures} failed to start, the last with {self.reason!r}; waits before the next"
