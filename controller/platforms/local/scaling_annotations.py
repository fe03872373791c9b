"""The ``autoscaling.knative.dev/*`` annotations of a template or a revision as a ``ScalingSpec``.

Knative ignores an unknown key silently; here it is refused, because a typing error would change the scale.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from controller.platforms.local.cluster_defaults import LOCAL, ClusterDefaults
from controller.platforms.local.quantities import parse_duration_s
from controller.platforms.local.scaling_spec import ScalingSpec

PREFIX = "autoscaling.knative.dev/"

_HOUR_S = 3600.0
Parser = Callable[[str], float]


class AnnotationRefused(ValueError):
    """An autoscaling annotation that cannot be honoured."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{PREFIX}{key}: {reason}")
        self.key = key
        self.reason = reason


def _integer(at_least: int, at_most: int = 2**31 - 1) -> Parser:
    def parse(text: str) -> float:
        if not text.isdecimal() or not at_least <= int(text) <= at_most:
            raise ValueError(f"must be a whole number from {at_least} to {at_most}, not {text!r}")
        return int(text)

    return parse


def _number(at_least: float, at_most: float, *, divided_by: float = 1.0) -> Parser:
    def parse(text: str) -> float:
        value = float(text)
        if not at_least <= value <= at_most:
            raise ValueError(f"must be from {at_least:g} to {at_most:g}, not {text!r}")
        return value / divided_by

    return parse


def _burst_capacity(text: str) -> float:
    value = float(text)
    if value < 0 and value != -1:
        raise ValueError(f"must be -1, 0 or more, not {text!r}")
    return value


def _duration(at_least_s: float, *, whole_seconds: bool) -> Parser:
    def parse(text: str) -> float:
        value = parse_duration_s(text)
        if not at_least_s <= value <= _HOUR_S or (whole_seconds and value != int(value)):
            whole = " whole" if whole_seconds else ""
            raise ValueError(f"must be{whole} seconds from {at_least_s:g}s to 1h, not {text!r}")
        return value

    return parse


_FIELDS: Mapping[str, tuple[str, Parser]] = {
    "min-scale": ("min_scale", _integer(0)),
    "max-scale": ("max_scale", _integer(0)),
    "initial-scale": ("initial_scale", _integer(0)),
    "activation-scale": ("activation_scale", _integer(1)),
    "target": ("target", _number(0.01, 1e6)),
    "target-utilization-percentage": ("utilization", _number(1, 100, divided_by=100)),
    "target-burst-capacity": ("target_burst_capacity", _burst_capacity),
    "window": ("window_s", _duration(6, whole_seconds=True)),
    "panic-window-percentage": ("panic_window_fraction", _number(1, 100, divided_by=100)),
    "panic-threshold-percentage": ("panic_threshold", _number(110, 1000, divided_by=100)),
    "scale-down-delay": ("scale_down_delay_s", _duration(0, whole_seconds=False)),
    "scale-to-zero-pod-retention-period": ("retention_s", _duration(0, whole_seconds=False)),
}
"""Annotation without its prefix: field of ``ScalingSpec``, and how its text is read."""

_ONLY_VALUES = {
    "class": ("kpa.autoscaling.knative.dev", "it scales to zero, others do not"),
    "metric": ("concurrency", "calls last for seconds or minutes, so the load is their number in flight"),
}


def parse_scaling(
    annotations: Mapping[str, str], *, container_concurrency: int, cluster: ClusterDefaults = LOCAL
) -> ScalingSpec:
    """The scaling a template asks for. Keys come without the prefix.

    Raises ``AnnotationRefused`` with the key and the reason: unknown, out of its bounds, or not concurrency-based.
    """
    return edit_scaling(_without_annotations(container_concurrency, cluster), annotations)


def edit_scaling(spec: ScalingSpec, changes: Mapping[str, str | None]) -> ScalingSpec:
    """The scaling after annotations were set, or taken away (None), which brings the cluster's default back.

    Raises ``AnnotationRefused`` as ``parse_scaling`` does.
    """
    defaults = _without_annotations(spec.container_concurrency, spec.cluster)
    values: dict[str, Any] = {}
    for key, text in changes.items():
        if key in _ONLY_VALUES:
            _check_only_value(key, text)
            continue
        field, parse = _field(key)
        try:
            values[field] = getattr(defaults, field) if text is None else parse(text)
        except ValueError as error:
            raise AnnotationRefused(key, str(error)) from error
    edited = replace(spec, **values)
    _check_scales(edited)
    return edited


def _without_annotations(container_concurrency: int, cluster: ClusterDefaults) -> ScalingSpec:
    return ScalingSpec(
        container_concurrency=container_concurrency,
        utilization=cluster.target_utilization,
        target_burst_capacity=cluster.target_burst_capacity,
        window_s=cluster.stable_window_s,
        panic_window_fraction=cluster.panic_window_fraction,
        panic_threshold=cluster.panic_threshold,
        min_scale=cluster.min_scale,
        max_scale=cluster.max_scale,
        initial_scale=cluster.initial_scale,
        retention_s=cluster.pod_retention_s,
        cluster=cluster,
    )


def _check_only_value(key: str, text: str | None) -> None:
    only, why = _ONLY_VALUES[key]
    if text not in (only, None):
        raise AnnotationRefused(key, f"only {only!r} is supported on one machine ({why}), not {text!r}")


def _field(key: str) -> tuple[str, Parser]:
    if key not in _FIELDS:
        near = difflib.get_close_matches(_dashed(key), _FIELDS, n=1, cutoff=0.5)
        raise AnnotationRefused(key, "is unknown" + (f"; is {near[0]!r} meant?" if near else ""))
    return _FIELDS[key]


def _check_scales(spec: ScalingSpec) -> None:
    """What holds between the scales and the cluster's limits."""
    limit = spec.cluster.max_scale_limit
    if 0 < spec.max_scale < spec.min_scale:
        raise AnnotationRefused("min-scale", f"{spec.min_scale} is more than max-scale {spec.max_scale}")
    if limit and not 0 < spec.max_scale <= limit:
        raise AnnotationRefused("max-scale", f"must be from 1 to the cluster's limit {limit}, not {spec.max_scale}")
    if spec.initial_scale == 0 and not spec.cluster.allow_zero_initial_scale:
        raise AnnotationRefused("initial-scale", "0 is not allowed on this cluster (allow-zero-initial-scale)")


def _dashed(key: str) -> str:
    """``minScale`` and ``min_scale`` as ``min-scale``, to find what was meant."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key).replace("_", "-")
