"""Kubernetes quantities and Go durations, as manifests spell them."""

import re
from decimal import Decimal, InvalidOperation

_SUFFIX_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def parse_quantity(text: str) -> Decimal:
    """The number a Kubernetes quantity stands for: ``500m`` is 0.5, ``2Gi`` is 2147483648.

    Raises ``ValueError`` where the text is not a quantity of zero or more.
    """
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", text)
    if match is None or match[2] not in _SUFFIX_FACTORS:
        raise ValueError(f"{text!r} is not a quantity; write a number such as 2, 500m or 2Gi")
    try:
        return Decimal(match[1]) * _SUFFIX_FACTORS[match[2]]
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity; {match[1]!r} is not a number") from None


def parse_duration_s(text: str) -> float:
    """Seconds of a Go duration such as ``90s``, ``1m30s`` or ``500ms``. Raises ``ValueError`` otherwise."""
    part = r"([0-9]+(?:\.[0-9]+)?)(ms|us|ns|h|m|s)"
    if text == "0":
        return 0.0
    if re.fullmatch(f"(?:{part})+", text) is None:
        raise ValueError(f"{text!r} is not a duration; write a number with its unit, such as 30s or 1m30s")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in re.findall(part, text))
