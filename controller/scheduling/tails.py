"""What an actor still has to do, and how long that takes with what others leave to it.

The rest of a sequence costs its own share of each step wherever it runs, and an actor the base of every step that it
makes (``actor_time``):

    T = base · steps + sum over sequences of rest · (per_sequence + per_context · (context + rest / 2)),

where the steps are the longest rest, or all of them over the places. What is left to an actor costs its prefill, or its
fetch, and its share; the steps only so far as it goes on for longer than what the actor has. It waits for a moment
until it is there, which matters no more than that either: while the actor has other things to do, it does them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.scheduling.decode_profile import DecodeProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A sequence that has not ended."""

    tokens: float
    """That it is expected to need still."""
    context: float
    """Prompt and generated tokens that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The unfinished sequences of one actor. A value: what comes makes another one."""

    profile: DecodeProfile
    num: int = 0
    longest: float = 0.0
    """Tokens until the last one ends."""
    tokens: float = 0.0
    """Of all rests."""
    share_s: float = 0.0
    """What the tokens cost besides the base."""
    extra_s: float = 0.0
    """Prefill or fetch of what came, and waiting for it."""

    @classmethod
    def of(cls, profile: DecodeProfile, rests: Sequence[Rest], longest: float = 0.0) -> "Tail":
        """The tail of an actor that has begun these, or will; the last one is expected to need the ``longest``, which
        is more than each is expected to need."""
        return cls(
            profile=profile,
            num=len(rests),
            longest=max([longest, *(rest.tokens for rest in rests)]),
            tokens=sum(rest.tokens for rest in rests),
            share_s=sum(_share_s(rest, profile) for rest in rests),
        )

    @property
    def seconds(self) -> float:
        """Until its last sequence ends."""
        steps = max(self.longest, self.tokens / self.profile.max_num_sequences)
        return self.extra_s + self.profile.base_s * steps + self.share_s

    def given(self, rests: Sequence[Rest], longest: float, token_s: float, wait_s: float) -> "Tail":
        """The tail with these too: ``token_s`` per token of context for what they have, ``wait_s`` until they come."""
        if not rests:
            return self
        come = Tail.of(self.profile, rests, longest)
        beyond_s = self.profile.base_s * (come.longest - self.longest) + wait_s
        return replace(
            self,
            num=self.num + come.num,
            longest=max(self.longest, come.longest),
            tokens=self.tokens + come.tokens,
            share_s=self.share_s + come.share_s,
            extra_s=self.extra_s + token_s * sum(rest.context for rest in rests) + max(0.0, min(wait_s, beyond_s)),
        )


def _share_s(rest: Rest, profile: DecodeProfile) -> float:
    per_token = profile.per_sequence_s + profile.per_context_token_s * (rest.context + rest.tokens / 2)
    return rest.tokens * per_token
