"""How fast a replica decoded, at which load: what the controller learns its speed from."""

from shared.contracts.rollout import MAX_DECODE_STRETCHES, DecodeStretch


class DecodeLog:
    """All decoding of one call, in at most ``MAX_DECODE_STRETCHES`` stretches.

    They get longer as the call goes on: when there are twice as many, each joins its neighbour.
    """

    def __init__(self) -> None:
        self._stretches: list[DecodeStretch] = []
        self._num_joined = 1
        """Bursts in a full stretch."""
        self._num_in_last = 0
        self.num_steps = 0
        self.num_tokens = 0.0
        """One per running sequence and step."""

    def add(self, burst: DecodeStretch) -> None:
        """Note one burst of decoding."""
        self.num_steps += burst.num_steps
        self.num_tokens += burst.num_steps * burst.num_sequences
        if self._stretches and self._num_in_last < self._num_joined:
            self._stretches[-1] = joined(self._stretches[-1], burst)
            self._num_in_last += 1
            return
        if len(self._stretches) == 2 * MAX_DECODE_STRETCHES:
            self._stretches = in_pairs(self._stretches)
            self._num_joined *= 2
        self._stretches.append(burst)
        self._num_in_last = 1

    def stretches(self) -> tuple[DecodeStretch, ...]:
        """What was noted, in order."""
        stretches = self._stretches
        while len(stretches) > MAX_DECODE_STRETCHES:
            stretches = in_pairs(stretches)
        return tuple(stretches)


def in_pairs(stretches: list[DecodeStretch]) -> list[DecodeStretch]:
    """Every two neighbours as one."""
    pairs = zip(stretches[::2], stretches[1::2], strict=False)
    odd = stretches[-1:] if len(stretches) % 2 else []
    return [joined(one, other) for one, other in pairs] + odd


def joined(one: DecodeStretch, other: DecodeStretch) -> DecodeStretch:
    """Two stretches as one: sums of steps and seconds, means of the load over the steps."""
    num_steps = one.num_steps + other.num_steps
    share = one.num_steps / num_steps
    return DecodeStretch(
        num_steps=num_steps,
        num_sequences=share * one.num_sequences + (1 - share) * other.num_sequences,
        context_tokens=share * one.context_tokens + (1 - share) * other.context_tokens,
        seconds=one.seconds + other.seconds,
    )
