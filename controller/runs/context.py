"""Everything that one owner of one run works with."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.platforms.base import Platform
from controller.runs.config.run_config import RunConfig
from controller.runs.ledger import Price
from controller.runs.prepared import Prepared
from controller.runs.stage_client import StageClient
from controller.scheduling.plan import Resources
from shared.store.base import Store
from shared.store.blobs import BlobStore

Emit = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Adds an event to the run's log: its kind, and its data."""


async def _unheard(line: str) -> None:
    """Nobody follows the run."""


async def _nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """One run in the hands of its owner. Holds no state of the run: that is the manifest."""

    run: str
    config: RunConfig
    prepared: Prepared
    """The run's model and data, read and checked."""
    fence: int
    store: Store
    blobs: BlobStore
    platform: Platform
    client: StageClient
    resources: Resources
    price: Price
    checkpoint_root: Path
    """The run's own folder: its checkpoints, its metrics."""
    emit: Emit
    notify: Callable[[str], Awaitable[None]] = _unheard
    """Adds a warning to the run's log."""
    between_steps: Callable[[], Awaitable[None]] = _nothing
    """Awaited before each step: functions may be changed then, and are looked at."""
    resume_from: Path | None = None
    """The checkpoint that the run begins from; ``None`` for version 0."""
