"""Keeps a run's ledger: one window after the other, from the owner's first moment on, so that nothing is left out."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from controller.platforms.base import Platform
from controller.runs.ledger import Price, StageCost, account
from controller.runs.stage_client import CallRecord
from shared.observability.metrics import REPLICA_SECONDS


class Accountant:
    """Accounts for the platform's replicas in windows that tile the time."""

    def __init__(self, platform: Platform, price: Price) -> None:
        self._platform = platform
        self._price = price
        self._closed_to = platform.now()

    async def close_window(self, purpose: str, calls: Sequence[CallRecord]) -> dict[str, dict[str, Any]]:
        """Cost since the last window, by function, marked with what the time was for."""
        now = self._platform.now()
        lives = await self._platform.replicas()
        costs = account(lives, calls, start=self._closed_to, end=now, price=self._price)
        self._closed_to = now
        for function, cost in costs.items():
            _count(function, cost)
        return {function: asdict(cost) | {"purpose": purpose} for function, cost in sorted(costs.items())}


def _count(function: str, cost: StageCost) -> None:
    for kind in ("busy", "idle", "cold", "draining"):
        REPLICA_SECONDS.labels(function, kind).inc(getattr(cost, f"{kind}_s"))
