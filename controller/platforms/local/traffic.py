"""Which revision a request goes to: ``spec.traffic`` of a Knative Service. Pure.

Source: knative/serving ``pkg/apis/serving/v1/route_validation.go``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_FIELDS = ("revisionName", "latestRevision", "percent", "tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficTarget:
    """One entry: a share of the requests for a revision, and a host name of its own for those with a tag."""

    percent: int = 0
    revision: str | None = None
    """Name of the revision. None: the latest that is ready."""
    tag: str = ""


ALL_TO_LATEST = (TrafficTarget(percent=100),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A target whose revision is known."""

    percent: int
    revision: str
    tag: str = ""


class TrafficRefused(ValueError):
    """An entry that Knative's webhook would refuse, or one that names no revision here."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        """``[1].percent``; empty where the list as a whole is wrong."""
        self.reason = reason


def parse_traffic(entries: object) -> tuple[TrafficTarget, ...]:
    """The targets of a manifest; all to the latest revision where it lists none. Raises ``TrafficRefused``."""
    if entries is None or entries == []:
        return ALL_TO_LATEST
    if not isinstance(entries, list):
        raise TrafficRefused("", "must be a list")
    targets = tuple(_parse_target(f"[{index}]", entry) for index, entry in enumerate(entries))
    total = sum(target.percent for target in targets)
    if total != 100:
        raise TrafficRefused("", f"percentages sum to {total}, not to 100")
    tags = [target.tag for target in targets if target.tag]
    for index, target in enumerate(targets):
        if tags.count(target.tag) > 1:
            raise TrafficRefused(f"[{index}].tag", f"{target.tag!r} is given more than once")
    return targets


def check_revisions(targets: Iterable[TrafficTarget], known: Sequence[str]) -> None:
    """Raises ``TrafficRefused`` where a target names a revision that there is not."""
    for index, target in enumerate(targets):
        if target.revision is not None and target.revision not in known:
            reason = f"no revision {target.revision!r}; revisions last as long as the platform runs, there are"
            raise TrafficRefused(f"[{index}].revisionName", f"{reason} {', '.join(known)}")


def resolve(targets: Iterable[TrafficTarget], *, latest: str) -> tuple[Share, ...]:
    """The shares, where ``latest`` is the latest ready revision."""
    return tuple(
        Share(percent=target.percent, revision=target.revision or latest, tag=target.tag) for target in targets
    )


def choose(shares: Sequence[Share], u: float) -> str:
    """The revision of one request, by a number in [0, 1) that is drawn evenly."""
    point = u * 100
    for share in shares:
        if point < share.percent:
            return share.revision
        point -= share.percent
    return next(share.revision for share in reversed(shares) if share.percent)


def tagged(shares: Iterable[Share]) -> dict[str, str]:
    """Revisions by tag."""
    return {share.tag: share.revision for share in shares if share.tag}


def percentages(shares: Iterable[Share]) -> dict[str, int]:
    """Percent of all requests by revision, those that are only reached by a tag included."""
    totals: dict[str, int] = {}
    for share in shares:
        totals[share.revision] = totals.get(share.revision, 0) + share.percent
    return totals


def _parse_target(field: str, entry: object) -> TrafficTarget:
    if not isinstance(entry, Mapping):
        raise TrafficRefused(field, "must be a mapping")
    for key in entry:
        if key not in _FIELDS:
            raise TrafficRefused(f"{field}.{key}", f"is not allowed here; there are {', '.join(_FIELDS)}")
    revision, latest, tag = entry.get("revisionName"), entry.get("latestRevision"), entry.get("tag", "")
    if revision is not None and (not isinstance(revision, str) or not revision):
        raise TrafficRefused(f"{field}.revisionName", f"must be a revision's name, not {revision!r}")
    if latest is not None and latest is not (revision is None):
        raise TrafficRefused(f"{field}.latestRevision", f"may not be {latest!r} with revisionName {revision!r}")
    percent = entry.get("percent", 0)
    if not isinstance(percent, int) or isinstance(percent, bool) or not 0 <= percent <= 100:
        raise TrafficRefused(f"{field}.percent", f"must be a whole number from 0 to 100, not {percent!r}")
    if not isinstance(tag, str) or (tag and _LABEL.fullmatch(tag) is None):
        raise TrafficRefused(f"{field}.tag", f"{tag!r} must be lower case letters, digits and dashes, 63 at most")
    return TrafficTarget(percent=percent, revision=revision, tag=tag)
