"""Knative's own rhythm, which no configuration changes. Tests with real processes run it faster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """Durations in seconds."""

    report_s: float = 1.0
    """Between two reports of the load."""
    tick_s: float = 2.0
    """Between two decisions of the autoscaler. A request at zero asks for one at once."""
    requeue_s: float = 3.0
    """From a revision's being found idle to the removal of its last replica, where the activator is in its path."""
    probe_s: float = 1.0
    """The same where the activator has yet to come into the path, and a probe has to see it there."""
    activation_buffer_s: float = 30.0
    """After the progress deadline: time before a revision that does not become ready is given up."""
