"""The port for what steps leave behind: lengths and profiles for later plans, plans and traces for people.

Lengths, plans and traces belong to a run and are deleted with it. Values are texts and bytes whose form is the
controller's own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.contracts.call import BatchKey
from shared.contracts.completion import SampleId

TRACE_BUDGET_BYTES = 2**25
"""What one run's traces may take; the oldest steps' go first."""
PROFILE_TTL_S = 30 * 24 * 3600.0
"""How long a profile is kept that no run has measured again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecords:
    """What a finished step adds, in the moment in which the head moves behind it."""

    step: int
    lengths: Mapping[str, str] = field(default_factory=dict)
    """Length history by row: the whole new value of each row."""
    plan: bytes | None = None
    """The step's plan, in place of the one that was put when it began."""
    trace: bytes | None = None


class RecordStore(Protocol):
    """Length history, plans and traces of runs, and profiles across runs."""

    async def lengths(self, run: str, rows: Sequence[str]) -> dict[str, str]:
        """The length history of those of the rows that have one."""
        ...

    async def all_lengths(self, run: str) -> dict[str, str]:
        """The length history of every row that has one."""
        ...

    async def put_lengths(self, run: str, *, fence: int, lengths: Mapping[str, str]) -> None:
        """Store a whole history by row, before the run's first step. Raises ``StaleFence``."""
        ...

    async def put_plan(self, run: str, step: int, *, fence: int, plan: bytes) -> None:
        """Store the plan of a step, in place of an earlier one. Raises ``StaleFence``."""
        ...

    async def plan(self, run: str, step: int) -> bytes | None:
        """The plan of a step."""
        ...

    async def planned_steps(self, run: str) -> Sequence[int]:
        """The steps that have a plan, in order."""
        ...

    async def traced_steps(self, run: str) -> Sequence[int]:
        """The steps that have a trace, in order."""
        ...

    async def trace(self, run: str, step: int) -> bytes | None:
        """The trace of a step; ``None`` where there is none (any more)."""
        ...

    async def put_profile(self, name: str, profile: str) -> None:
        """Store a profile for all runs, for ``PROFILE_TTL_S``."""
        ...

    async def profile(self, name: str) -> str | None:
        """The profile of that name."""
        ...

    async def completion_headers(self, batch: BatchKey, ids: Sequence[SampleId]) -> dict[SampleId, bytes]:
        """The beginning of each stored completion among ``ids``, up to the end of its safetensors header: what is known
        of it without its tokens."""
        ...
