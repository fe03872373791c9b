"""How much of a batch's prefill would be the same work over again.

RLHFless (arXiv 2602.22718, section on deduplicated prefill) finds that a fifth of all GPU time repeats the keys and
values of a prompt for each of its completions, and computes each distinct prefix once: of n samples that saves
(n - 1) / n of the prefill. Its rule for the length of these prefixes, the largest L with ``D(L) <= B`` distinct ones,
is in ``shared.inference.distinct_prefixes``, with the slip in the direction of D corrected; the function that prefills
follows it. An actor follows a simpler one: a prompt once for all of its samples that the actor has.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplication:
    """What a batch's prefill comes to, in tokens."""

    num_repeated_tokens: int
    """Were every sample prefilled by itself."""
    num_computed_tokens: int
    """By the plan: split groups count their prompt for every part, common beginnings once where they are shared."""

    @property
    def num_saved_tokens(self) -> int:
        """Tokens that need not be computed."""
        return self.num_repeated_tokens - self.num_computed_tokens

    @property
    def saved_share(self) -> float:
        """Share of the prefill that need not be computed."""
        return self.num_saved_tokens / self.num_repeated_tokens if self.num_repeated_tokens else 0.0


def deduplicated(num_prompt_tokens: int, *, group_size: int, num_computed_tokens: int) -> Deduplication:
    """Of prompts with so many tokens together and ``group_size`` samples each, if so many tokens are computed."""
    return Deduplication(
        num_repeated_tokens=group_size * num_prompt_tokens,
        num_computed_tokens=num_computed_tokens,
    )
