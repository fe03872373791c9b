"""How the parts of a step share the machines: one after the other, as a pipeline, or some of each.

RLinf (arXiv 2509.15965, section on profiling-guided scheduling, algorithm 1) cuts the flow of a step in two, again and
again. Both halves either share all devices, one after the other, or have their own and work as a pipeline on pieces of
the batch:

    T = T_first + T_second + switch            phase after phase
    T = warm-up + (M / m - 1) · bottleneck     pipelined, M items in pieces of m

Warm-up is what the first piece takes through both halves, bottleneck what the slower half takes for a piece. The best
split of every sub-flow on every number of devices is remembered, so the search is polynomial; for a chain, which a step
is, cuts at every link are all cuts there are.

What is corrected. The published code tries ``range(1, num_devices - 1)`` devices for the first half, so it never gives
the second half a single device, and with two devices it never splits at all; here 1..num_devices - 1 are tried. It
keeps one best schedule per sub-flow, though a pipeline may want one with a longer warm-up and shorter intervals; here
all are kept that are not worse in both, so the result is the best of its kind. It has no cost of switching; here each
hand-over of shared devices has one, and so has each piece for which they are handed to and fro. Its pieces are single
groups; here their number is given, and what a part takes whatever its size (a call, the base of a decode step) is paid
for every piece.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

Mode = Literal["phased", "pipelined", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a step, by its profile."""

    name: str
    unit_s: float
    """Device-seconds for the whole batch, which more devices divide."""
    fixed_s: float = 0.0
    """Seconds of each piece that neither devices nor smaller pieces shorten."""
    min_devices: int = 1
    """Devices that it needs at all (memory)."""
    max_devices: int | None = None
    """Devices beyond which it gets no faster; ``None``: no such bound."""

    def seconds(self, num_devices: int, num_pieces: int = 1) -> float:
        """Seconds of one of so many pieces."""
        used = min(num_devices, self.max_devices or num_devices)
        return self.fixed_s + self.unit_s / used / num_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a chain of parts is executed on some devices."""

    mode: Mode
    num_devices: int
    warm_up_s: float
    """Until the first piece is through."""
    interval_s: float
    """Between pieces."""
    num_pieces: int
    part: str = ""
    """The name of a single part."""
    halves: tuple["Execution", ...] = ()
    """What it is made of otherwise, the earlier parts first."""

    @property
    def time_s(self) -> float:
        """T = warm-up + (pieces - 1) · bottleneck."""
        return self.warm_up_s + (self.num_pieces - 1) * self.interval_s

    @property
    def devices(self) -> dict[str, int]:
        """Devices of each part."""
        if not self.halves:
            return {self.part: self.num_devices}
        return {name: number for half in self.halves for name, number in half.devices.items()}

    @property
    def kind(self) -> Literal["phased", "pipelined", "mixed"]:
        """In a word: all one after the other, all at once, or some of each."""
        modes = self._modes()
        if len(modes) == 2:
            return "mixed"
        return "pipelined" if modes == {"pipelined"} else "phased"

    def _modes(self) -> set[Mode]:
        return {self.mode}.union(*(half._modes() for half in self.halves)) - {"single"}


def best_execution(parts: Sequence[Part], num_devices: int, *, num_pieces: int = 1, switch_s: float = 0.0) -> Execution:
    """The fastest execution of a chain of parts. Raises ``ValueError`` if the devices are too few for one of them.

    ``num_pieces`` is M / m, ``switch_s`` what it takes to hand shared devices from one half to the other.
    """
    if not parts:
        raise ValueError("a step has at least one part")
    chain = tuple(parts)

    @cache
    def fronts(begin: int, end: int, devices: int, pieces: int) -> tuple[Execution, ...]:
        """All executions of a piece of the chain that are not worse than another in warm-up and interval."""
        if end - begin == 1:
            part = chain[begin]
            if devices < part.min_devices:
                return ()
            seconds = part.seconds(devices, pieces)
            return (_of("single", devices, pieces, seconds, seconds, part=part.name),)
        found: list[Execution] = []
        for cut in range(begin + 1, end):
            for first in fronts(begin, cut, devices, pieces):
                found += (_shared(first, second, switch_s) for second in fronts(cut, end, devices, pieces))
            for given in range(1, devices):
                for first in fronts(begin, cut, given, pieces):
                    found += (_joined(first, second) for second in fronts(cut, end, devices - given, pieces))
        return _not_worse(found)

    @cache
    def fastest(begin: int, end: int, devices: int) -> Execution | None:
        """The best for the whole batch: in pieces, or one half after the other."""
        options = [*fronts(begin, end, devices, 1), *fronts(begin, end, devices, num_pieces)]
        for cut in range(begin + 1, end):
            first, second = fastest(begin, cut, devices), fastest(cut, end, devices)
            if first is not None and second is not None:
                whole = first.time_s + second.time_s + switch_s
                options.append(_of("phased", devices, 1, whole, whole, halves=(first, second)))
        return min(options, key=lambda option: option.time_s, default=None)

    best = fastest(0, len(chain), num_devices)
    if best is None:
        raise ValueError(f"{num_devices} devices are too few for {', '.join(part.name for part in chain)}")
    return best


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionHint:
    """Which execution of a step would be the fastest, against one part after the other."""

    kind: Literal["phased", "pipelined", "mixed"]
    time_s: float
    phased_s: float
    """With all devices for each part in turn."""
    devices: Mapping[str, int]
    """Devices of each part, by its name."""


def execution_hint(parts: Sequence[Part], num_devices: int, *, num_pieces: int, switch_s: float = 0.0) -> ExecutionHint:
    """The fastest execution in a few figures. Raises ``ValueError`` as ``best_execution`` does."""
    best = best_execution(parts, num_devices, num_pieces=num_pieces, switch_s=switch_s)
    phased_s = sum(part.seconds(num_devices) for part in parts) + switch_s * (len(parts) - 1)
    return ExecutionHint(kind=best.kind, time_s=best.time_s, phased_s=phased_s, devices=best.devices)


def _shared(first: Execution, second: Execution, switch_s: float) -> Execution:
    """Both halves on the same devices, in turns for every piece: handed over within a piece, and back after it."""
    warm_up_s = first.warm_up_s + second.warm_up_s + switch_s
    interval_s = first.interval_s + second.interval_s + 2 * switch_s
    return _of("phased", first.num_devices, first.num_pieces, warm_up_s, interval_s, halves=(first, second))


def _joined(first: Execution, second: Execution) -> Execution:
    """Each half on devices of its own: the slower one sets the pace."""
    return _of(
        "pipelined",
        first.num_devices + second.num_devices,
        first.num_pieces,
        first.warm_up_s + second.warm_up_s,
        max(first.interval_s, second.interval_s),
        halves=(first, second),
    )


def _of(
    mode: Mode,
    num_devices: int,
    num_pieces: int,
    warm_up_s: float,
    interval_s: float,
    *,
    part: str = "",
    halves: tuple[Execution, ...] = (),
) -> Execution:
    return Execution(
        mode=mode,
        num_devices=num_devices,
        num_pieces=num_pieces,
        warm_up_s=warm_up_s,
        interval_s=interval_s,
        part=part,
        halves=halves,
    )


def _not_worse(options: Sequence[Execution]) -> tuple[Execution, ...]:
    """Those that no other one beats in warm-up and interval."""
    front: list[Execution] = []
    for option in sorted(options, key=lambda option: (option.warm_up_s, option.interval_s)):
        if not front or option.interval_s < front[-1].interval_s:
            front.append(option)
    return tuple(front)
