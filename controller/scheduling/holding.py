"""Whether a replica is held until its stage's next use, or released; and when one is started before its use.

A held replica costs its idle gap. A released one is not free at once: on Knative its pod drains for 30 s in which it
holds its GPU (measured: queue-proxy waits for late requests), and the next use pays its cold start, the load of weights
or state, and, for one with state that is not durable yet, the write of it. So

    hold if  gap <= drain + cold start + state write + state read + load,

both sides in seconds of the same held units; the larger one of two costs is avoided, and an uncertain gap is weighed by
its mean over the past. Were all starts hidden by pre-warming the left side would still be paid: a replica that starts
early is held while it starts.

RLHFless (arXiv 2602.22718, section on implementation) pre-warms a function at the shortest of its past durations plus a
fixed buffer, whose value it does not give: started for the shortest, a replica is never late, and idles for the rest.
The start is begun so much earlier as a cold start takes.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingFigures:
    """What letting a replica of one stage go costs, in seconds of its units. Defaults: Knative 1.23, measured."""

    drain_s: float = 30.0
    """From the decision until its GPU is free."""
    cold_start_s: float = 3.3
    """From the decision until it answers."""
    load_s: float = 0.0
    """Fetch and load of weights."""
    state_write_s: float = 0.0
    """Making its state durable; 0 where it is, or has none."""
    state_read_s: float = 0.0
    """Reading the state back, replay of updates included."""

    @property
    def release_s(self) -> float:
        """Seconds that release and return cost."""
        return self.drain_s + self.cold_start_s + self.load_s + self.state_write_s + self.state_read_s


LOCAL_HOLDING = HoldingFigures(drain_s=0.05, cold_start_s=1.5)
"""Replicas as processes of one machine: a warm fork server starts them, and nothing else waits to drain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What to do with a stage's replicas after their work."""

    keep: bool
    idle_s: float
    """Expected gap until the next use."""
    saved_s: float
    """Held seconds per replica that the choice saves against the other one."""
    reason: str


def hold_or_release(past_gaps_s: Sequence[float], figures: HoldingFigures) -> Hold:
    """Compare the mean idle gap until the stage's next use with a release. Without a past, it is released."""
    if not past_gaps_s:
        return Hold(keep=False, idle_s=0.0, saved_s=0.0, reason="no gap is known yet")
    gap, cost = statistics.fmean(past_gaps_s), figures.release_s
    keep = gap <= cost
    return Hold(
        keep=keep,
        idle_s=gap,
        saved_s=abs(cost - gap),
        reason=f"idle for {gap:.3g} s, released and back for {cost:.3g} s",
    )


def hold_until(now: float, hold: Hold, past_gaps_s: Sequence[float], buffer_s: float) -> float:
    """The time until which replicas are kept: ``now`` for a release, else after the longest past gap and a buffer."""
    return now + max(past_gaps_s) + buffer_s if hold.keep else now


def prewarm_at(
    began_at: float, past_durations_s: Sequence[float], cold_start_s: float, buffer_s: float
) -> float | None:
    """When to start a replica for the use that follows something that began at ``began_at``; ``None`` without a past.

    The use is expected after the shortest past duration; the replica is to be ready a buffer before it.
    """
    if not past_durations_s:
        return None
    return max(began_at, began_at + min(past_durations_s) - cold_start_s - buffer_s)
