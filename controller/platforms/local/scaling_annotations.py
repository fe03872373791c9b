"""The ``autoscaling.knative.dev/*`` annotations of a template as a ``ScalingSpec``.

Knative ignores an unknown key silently; here it is refused, because a typing error would change the scale.
"""

import difflib
from collections.abc import Callable, Mapping

from controller.platforms.local.autoscaler import ScalingSpec
from controller.platforms.local.quantities import parse_duration_s

PREFIX = "autoscaling.knative.dev/"

_HOUR_S = 3600.0


def _integer(at_least: int, at_most: int = 2**31 - 1) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not text.isdecimal() or not at_least <= int(text) <= at_most:
            raise ValueError(f"must be a whole number from {at_least} to {at_most}, not {text!r}")
        return int(text)

    return parse


def _number(at_least: float, at_most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not at_least <= value <= at_most:
            raise ValueError(f"must be from {at_least:g} to {at_most:g}, not {text!r}")
        return value

    return parse


def _burst_capacity(text: str) -> float:
    value = float(text)
    if value < 0 and value != -1:
        raise ValueError(f"must be -1, 0 or more, not {text!r}")
    return value


def _duration(at_least_s: float, *, whole_seconds: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = parse_duration_s(text)
        if not at_least_s <= value <= _HOUR_S or (whole_seconds and value != int(value)):
            whole = " whole" if whole_seconds else ""
            raise ValueError(f"must be{whole} seconds from {at_least_s:g}s to 1h, not {text!r}")
        return value

    return parse


_PARSERS: Mapping[str, Callable[[str], float]] = {
    "min-scale": _integer(0),
    "max-scale": _integer(0),
    "initial-scale": _integer(0),
    "activation-scale": _integer(1),
    "target": _number(0.01, 1e6),
    "target-utilization-percentage": _number(1, 100),
    "target-burst-capacity": _burst_capacity,
    "window": _duration(6, whole_seconds=True),
    "panic-window-percentage": _number(1, 100),
    "panic-threshold-percentage": _number(110, 1000),
    "scale-down-delay": _duration(0, whole_seconds=False),
    "scale-to-zero-pod-retention-period": _duration(0, whole_seconds=False),
}
_ONLY_VALUES = {"class": "kpa.autoscaling.knative.dev", "metric": "concurrency"}


def parse_scaling(annotations: Mapping[str, str], *, container_concurrency: int) -> ScalingSpec:
    """The scaling a template asks for. Keys come without the prefix.

    Raises ``AnnotationRefused`` with the key and the reason: unknown, out of its bounds, or not concurrency-based.
    """
    values: dict[str, float] = {}
    for key, text in annotations.items():
        if key in _ONLY_VALUES:
            if text != _ONLY_VALUES[key]:
                raise AnnotationRefused(key, f"only {_ONLY_VALUES[key]!r} is supported on one machine, not {text!r}")
            continue
        if key not in _PARSERS:
            near = difflib.get_close_matches(_dashed(key), _PARSERS, n=1, cutoff=0.5)
            raise AnnotationRefused(key, "is unknown" + (f"; is {near[0]!r} meant?" if near else ""))
        try:
            values[key] = _PARSERS[key](text)
        except ValueError as error:
            raise AnnotationRefused(key, str(error)) from error
    spec = ScalingSpec(
        container_concurrency=container_concurrency,
        target=values.get("target"),
        utilization=values.get("target-utilization-percentage", 70) / 100,
        window_s=values.get("window", 60),
        panic_window_fraction=values.get("panic-window-percentage", 10) / 100,
        panic_threshold=values.get("panic-threshold-percentage", 200) / 100,
        min_scale=int(values.get("min-scale", 0)),
        max_scale=int(values.get("max-scale", 0)),
        initial_scale=int(values.get("initial-scale", 0)),
        activation_scale=int(values.get("activation-scale", 1)),
        scale_down_delay_s=values.get("scale-down-delay", 0),
        retention_s=values.get("scale-to-zero-pod-retention-period", 0),
    )
    if 0 < spec.max_scale < spec.min_scale:
        raise AnnotationRefused("min-scale", f"{spec.min_scale} is more than max-scale {spec.max_scale}")
    return spec


class AnnotationRefused(ValueError):
    """An autoscaling annotation that cannot be honoured."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{PREFIX}{key}: {reason}")
        self.key = key
        self.reason = reason


def _dashed(key: str) -> str:
    """``minScale`` and ``min_scale`` as ``min-scale``, to find what was meant."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key).replace("_", "-")
