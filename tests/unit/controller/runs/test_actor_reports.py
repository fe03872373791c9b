"""What actors report: which of it is of now, and what it says of groups."""

import logging
from typing import Any

import pytest

from controller.runs.actor_reports import SILENT_S, Heard
from controller.scheduling.lengths import LengthEstimate
from shared.contracts.rollout import RolloutProgress, SequenceProgress


def report(shard: int, *, segment: int = 0, at: float = 1.0, **fields: Any) -> RolloutProgress:
    empty = {"num_assigned": 0, "num_done": 0, "num_waiting": 0, "free_slots": 4, "tokens_per_s": 0.0}
    return RolloutProgress(
        shard=shard, segment=segment, instance=f"i-{shard}", at=at, max_tokens=100, **{**empty, **fields}
    )


def stored(*reports: RolloutProgress) -> dict[int, bytes]:
    return {one.shard: one.model_dump_json().encode() for one in reports}


def sequences(**tokens: int) -> tuple[SequenceProgress, ...]:
    return tuple(
        SequenceProgress(row_uid=name[0], sample=int(name[1:]), num_tokens=count) for name, count in tokens.items()
    )


def test_only_reports_on_the_calls_that_run_now_count() -> None:
    heard = Heard()
    heard.take(stored(report(0), report(1, segment=1), report(2)), now=5.0)
    assert heard.fresh({0: 0, 1: 0, 3: 0}, now=5.0) == {0: report(0)}
    assert heard.fresh({1: 1}, now=5.0) == {1: report(1, segment=1)}


def test_an_actor_that_no_longer_reports_is_not_counted_on_until_it_does() -> None:
    heard, open = Heard(), {0: 0}
    heard.take(stored(report(0, at=1.0)), now=5.0)
    heard.take(stored(report(0, at=1.0)), now=5.0 + SILENT_S)
    assert heard.fresh(open, now=5.0 + SILENT_S)
    assert heard.fresh(open, now=5.1 + SILENT_S) == {}
    heard.take(stored(report(0, at=9.0)), now=9.0)
    assert heard.fresh(open, now=9.0) == {0: report(0, at=9.0)}


def test_an_unknown_report_leaves_its_actor_alone_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    heard = Heard()
    with caplog.at_level(logging.WARNING):
        for now in (1.0, 2.0):
            heard.take({0: b'{"shard": 0, "of": "another build"}', 1: report(1).model_dump_json().encode()}, now)
    assert heard.fresh({0: 0, 1: 0}, now=2.0) == {1: report(1)}
    assert caplog.messages == ["the report of rollout actor 0 is not understood"]


def test_what_has_finished_anywhere_tells_of_its_group() -> None:
    heard = Heard()
    prior = LengthEstimate(lengths=(10.0,) * 4, source="default")
    heard.take(stored(report(0, finished=sequences(a0=50)), report(1, finished=sequences(a1=60))), now=1.0)
    # Its next call begins a report of its own; what was heard before stays known.
    last = report(1, segment=1, running=sequences(a2=40, b0=5))
    heard.take(stored(last), now=2.0)
    found = heard.remaining({"a": prior, "b": prior}, [last])
    assert found.centres == {"a": (10 + 50 + 60 + 40) / 4, "b": 10.0}
