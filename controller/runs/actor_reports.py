"""What a batch's actors report while they work: who is heard of, and how long the samples were that have finished."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from controller.scheduling.lengths import LengthEstimate
from controller.scheduling.remaining import Remaining, remaining
from shared.contracts.rollout import RolloutProgress

log = logging.getLogger(__name__)

SILENT_S = 2.0
"""Without a new report for so long, an actor is thought to be lost: it is not counted on."""


@dataclass(frozen=True, slots=True)
class _Said:
    """The last report of one actor."""

    raw: bytes
    at: float
    """When it was new, by the platform's clock."""
    report: RolloutProgress | None


class Heard:
    """What the actors have reported so far."""

    def __init__(self) -> None:
        self._last: dict[int, _Said] = {}
        self._finished: dict[str, dict[int, int]] = {}

    def take(self, stored: Mapping[int, bytes], now: float) -> None:
        """Read the reports that are new."""
        for shard, raw in stored.items():
            if shard in self._last and self._last[shard].raw == raw:
                continue
            report = parse_report(shard, raw)
            self._last[shard] = _Said(raw, now, report)
            for one in () if report is None else report.finished:
                self._finished.setdefault(one.row_uid, {})[one.sample] = one.num_tokens

    def fresh(self, open: Mapping[int, int], now: float) -> dict[int, RolloutProgress]:
        """By shard, the reports on the calls that are on their way, of actors that still report."""
        return {
            shard: said.report
            for shard, said in self._last.items()
            if said.report is not None and open.get(shard) == said.report.segment and now - said.at <= SILENT_S
        }

    def remaining(self, estimates: Mapping[str, LengthEstimate], reports: Iterable[RolloutProgress]) -> Remaining:
        """What running samples still need, by what has finished in their batch, and by how far the others are."""
        finished = {row: tuple(samples.values()) for row, samples in self._finished.items()}
        reached: dict[str, list[int]] = {}
        for report in reports:
            for one in report.running:
                reached.setdefault(one.row_uid, []).append(one.num_tokens)
        return remaining(estimates, finished, reached)


def parse_report(shard: int, raw: bytes) -> RolloutProgress | None:
    """A report; ``None`` for one of a function of another build, whose actor is left alone."""
    try:
        return RolloutProgress.model_validate_json(raw)
    except ValidationError:
        log.warning("the report of rollout actor %d is not understood", shard)
        return None
