"""Traffic: what Knative's webhook refuses, and which revision a request goes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.platforms.local.traffic import (
    ALL_TO_LATEST,
    Share,
    TrafficRefused,
    TrafficTarget,
    check_revisions,
    choose,
    parse_traffic,
    percentages,
    resolve,
    tagged,
)

FIRST, SECOND = "rollout-00001", "rollout-00002"
SPLIT = (
    Share(percent=0, revision=FIRST, tag="old"),
    Share(percent=30, revision=FIRST),
    Share(percent=70, revision=SECOND),
)


@pytest.mark.parametrize("entries", [None, [], [{"percent": 100}], [{"latestRevision": True, "percent": 100}]])
def test_all_to_the_latest(entries: object) -> None:
    assert parse_traffic(entries) == ALL_TO_LATEST


def test_split_pinned_and_tagged() -> None:
    entries = [
        {"revisionName": FIRST, "percent": 30, "tag": "stable"},
        {"latestRevision": True, "percent": 70},
        {"revisionName": FIRST, "latestRevision": False, "tag": "old"},
    ]
    targets = parse_traffic(entries)
    assert targets == (
        TrafficTarget(percent=30, revision=FIRST, tag="stable"),
        TrafficTarget(percent=70),
        TrafficTarget(revision=FIRST, tag="old"),
    )
    assert [share.revision for share in resolve(targets, latest=SECOND)] == [FIRST, SECOND, FIRST]


@pytest.mark.parametrize(
    ("entries", "field", "reason"),
    [
        ("all", "", "must be a list"),
        ([5], "[0]", "must be a mapping"),
        ([{"percent": 90}], "", "sum to 90"),
        ([{"percent": 60}, {"percent": 60}], "", "sum to 120"),
        ([{"percent": 101}], "[0].percent", "from 0 to 100"),
        ([{"percent": True}], "[0].percent", "whole number"),
        ([{"percent": "100"}], "[0].percent", "whole number"),
        ([{"percent": 100, "revisionName": FIRST, "latestRevision": True}], "[0].latestRevision", "may not be True"),
        ([{"percent": 100, "latestRevision": False}], "[0].latestRevision", "may not be False"),
        ([{"percent": 100, "revisionName": ""}], "[0].revisionName", "a revision's name"),
        ([{"percent": 100, "tag": "a"}, {"tag": "a"}], "[0].tag", "more than once"),
        ([{"percent": 100, "tag": "1a"}], "[0].tag", "lower case"),
        ([{"percent": 100, "url": "http://x"}], "[0].url", "not allowed"),
        ([{"percent": 100, "configurationName": "rollout"}], "[0].configurationName", "not allowed"),
    ],
)
def test_refused(entries: object, field: str, reason: str) -> None:
    with pytest.raises(TrafficRefused, match=reason) as refused:
        parse_traffic(entries)
    assert refused.value.field == field


def test_a_revision_that_there_is_not() -> None:
    targets = parse_traffic([{"percent": 100}, {"revisionName": SECOND, "tag": "next"}])
    check_revisions(targets, [FIRST, SECOND])
    with pytest.raises(TrafficRefused, match=r"no revision 'rollout-00002'; .* there are rollout-00001") as refused:
        check_revisions(targets, [FIRST])
    assert refused.value.field == "[1].revisionName"


@pytest.mark.parametrize(("u", "revision"), [(0.0, FIRST), (0.2999, FIRST), (0.3, SECOND), (0.9999, SECOND)])
def test_choice_by_percentage(u: float, revision: str) -> None:
    assert choose(SPLIT, u) == revision


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.floats(0, 1, exclude_max=True))
def test_a_share_of_nothing_gets_nothing(weights: list[int], u: float) -> None:
    percents = [*weights[:1], 100 - weights[0]]
    shares = [Share(percent=percent, revision=str(index)) for index, percent in enumerate(percents)]
    assert percents[int(choose(shares, u))] > 0


def test_what_a_split_comes_to() -> None:
    assert tagged(SPLIT) == {"old": FIRST}
    assert percentages(SPLIT) == {FIRST: 30, SECOND: 70}
