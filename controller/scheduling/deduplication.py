"""How much of a batch's prefill is the same work over again.

RLHFless (arXiv 2602.22718, section on deduplicated prefill) finds that a fifth of all GPU time repeats the keys and
values of a prompt for each of its completions, and computes each distinct prefix once: of n samples that saves (n - 1)
/ n of the prefill. Its rule, the largest length L with ``D(L) <= B`` distinct prefixes, is in
``shared.inference.distinct_prefixes``, with the slip in the direction of D corrected. Samples of one prompt and a cap
above the number of prompts are the usual case: then L is the whole prompt. Where there are more prompts than the
prefill holds at once, they are computed in rounds, not cut: a shorter prefix would leave the rest of each prompt to
every actor.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.inference.distinct_prefixes import find_distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplication:
    """What a batch's prefill comes to, in tokens."""

    num_repeated_tokens: int
    """Were every sample prefilled by itself."""
    num_prompt_tokens: int
    """With each row's prompt once."""
    num_tree_tokens: int
    """With every common beginning once."""
    prefix_tokens: int
    """L: tokens of the prefixes that are computed."""
    num_prefixes: int
    """D(L)."""
    num_rounds: int
    """Batches of the prefill that hold all prompts whole."""

    @property
    def saved_share(self) -> float:
        """Share of the prefill that need not be computed."""
        if not self.num_repeated_tokens:
            return 0.0
        return 1 - self.num_tree_tokens / self.num_repeated_tokens


def deduplicate(prompts: Sequence[Sequence[int]], *, group_size: int, max_batch: int) -> Deduplication:
    """What to compute of these prompts with ``group_size`` samples each, at most ``max_batch`` prefixes at once."""
    found = find_distinct(prompts)
    num_tokens = sum(map(len, prompts))
    length = found.longest_within(max_batch)
    return Deduplication(
        num_repeated_tokens=num_tokens * group_size,
        num_prompt_tokens=num_tokens,
        num_tree_tokens=found.num_tree_tokens,
        prefix_tokens=length,
        num_prefixes=found.num_distinct(length) if length else 0,
        num_rounds=-(-len(found.prompts) // max_batch),
    )
