"""Which prefixes are computed together. Pure, so that a call which goes on after a cut finds the same rounds."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.inference.block_hash import BLOCK_TOKENS
from shared.inference.distinct_prefixes import find_distinct, prefill_rounds

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPlan:
    """What to compute, in order."""

    shared: tuple[Tokens, ...]
    """Beginnings that prompts of several rounds share: computed first, to begin the rounds from, and not stored by
    themselves, for every prompt's own blocks have them."""
    rounds: tuple[tuple[Tokens, ...], ...]
    """Whole prefixes, each in one round."""

    @property
    def num_prefixes(self) -> int:
        """Distinct prefixes."""
        return sum(map(len, self.rounds))


def plan_rounds(prompts: Sequence[Sequence[int]], max_num_prefixes: int) -> PrefillPlan:
    """The rounds of a batch: at most ``max_num_prefixes`` prefixes are computed together.

    A prompt's last token is left out: the first decoding step computes it, and its logits. RLHFless (arXiv 2602.22718,
    deduplicated prefill) computes the distinct prefixes of the largest length L with D(L) <= B. Where a whole batch's
    distinct prompts are no more than B, these are the prompts themselves. Else they take several rounds, and the
    prefixes of that length L, which fit one, come first: no beginning in common is computed twice.
    """
    distinct = find_distinct([tuple(prompt)[:-1] for prompt in prompts if len(prompt) > 1])
    rounds = prefill_rounds(distinct.prompts, max_num_prefixes)
    length = distinct.longest_within(max_num_prefixes) if len(rounds) > 1 else 0
    # Shorter than a block, they save less than their own pass costs.
    shared = distinct.cut_at(length) if length >= BLOCK_TOKENS else ()
    return PrefillPlan(shared=shared, rounds=rounds)
