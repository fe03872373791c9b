"""Changing a function: a second port, of the platforms that can do it (a cluster, this machine)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChange:
    """What is different in the next revision of a function. Values of variables are kept out of ``repr``."""

    image: str | None = None
    env: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Variables to set; None takes one away."""
    requests: Mapping[str, str] = field(default_factory=dict)
    """Resources to ask for, such as ``cpu: 500m``."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Limits, such as ``nvidia.com/gpu: "1"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A revision that gets no requests yet."""

    function: str
    before: str
    """The revision that gets them."""
    revision: str
    """The new one; the same as ``before`` where the change changes nothing."""


class ChangeRefused(Exception):
    """The platform does not take the change; nothing is different."""


class ChangeNotPermitted(Exception):
    """The controller may not change functions here; nothing is different."""


class ChangeUnanswered(Exception):
    """The platform did not say whether it has taken the change."""


class FunctionEditor(Protocol):
    """Makes revisions and sends requests to them. Every method raises the exceptions above, or ``FunctionUnknown``."""

    async def route(self, function: str, revision: str) -> None:
        """Send all requests to a revision, by its name: no other gets any, however new it is."""
        ...

    async def propose(self, function: str, change: FunctionChange) -> Proposal:
        """Make a revision with the change. Requests stay where they are."""
        ...

    async def withdraw(self, proposal: Proposal) -> str:
        """Undo a proposal: requests go to the revision before, and the new one gives back what it holds.

        Returns the newest revision now, which is as the one before: on Knative it is another one.
        """
        ...
