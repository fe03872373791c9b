"""What of a set of prompts is the same: distinct prefixes, and how many tokens a prefill without repeats computes.

RLHFless (arXiv 2602.22718, section on deduplicated prefill) takes the largest length L with ``D(L) <= B``, where D(L)
is the number of distinct prefixes of L tokens and B the largest batch that the prefill holds. The paper says that D
falls as L grows. It cannot: a prefix of L tokens determines the one of L - 1, so D never falls (for {aX, aY}, D(1) = 1
and D(2) = 2). A prompt shorter than L counts with all of its tokens, so D is defined up to the longest prompt.

Sorted prompts make all of this one pass: neighbours u <= v differ within L tokens exactly if L exceeds the length c of
their common beginning, so ``D(L) = 1 + #{c < L}`` over neighbours, and the tokens of the prefix tree are the sum of
``|v| - c``. Standard library only; prompts are sequences of token ids.
"""

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctPrefixes:
    """The prompts of a batch by their common beginnings."""

    prompts: tuple[Tokens, ...]
    """Distinct prompts, sorted."""
    common_tokens: tuple[int, ...]
    """Tokens that neighbours of ``prompts`` begin with alike, sorted; one fewer than prompts."""
    num_tree_tokens: int
    """Tokens to compute where every common beginning is computed once."""

    @property
    def num_unique_tokens(self) -> int:
        """Tokens to compute where every distinct prompt is computed by itself."""
        return sum(map(len, self.prompts))

    def num_distinct(self, length: int) -> int:
        """D(L): distinct prefixes of ``length`` tokens; non-decreasing in the length."""
        if not self.prompts:
            return 0
        return 1 + bisect.bisect_left(self.common_tokens, length)

    def longest_within(self, max_prefixes: int) -> int:
        """The largest length up to the longest prompt with at most ``max_prefixes`` distinct prefixes; 0 for none."""
        if not self.prompts or max_prefixes < 1:
            return 0
        longest = max(map(len, self.prompts))
        if len(self.prompts) <= max_prefixes:
            return longest
        return self.common_tokens[max_prefixes - 1]

    def cut_at(self, length: int) -> tuple[Tokens, ...]:
        """The distinct prefixes of ``length`` tokens (of all tokens where a prompt is shorter), sorted."""
        return tuple(dict.fromkeys(prompt[:length] for prompt in self.prompts)) if length > 0 else ()


def find_distinct(prompts: Sequence[Sequence[int]]) -> DistinctPrefixes:
    """Sort the prompts and compare neighbours: O(total tokens) beside the sort."""
    distinct = sorted({tuple(prompt) for prompt in prompts})
    common = [common_length(first, second) for first, second in itertools.pairwise(distinct)]
    return DistinctPrefixes(
        prompts=tuple(distinct),
        common_tokens=tuple(sorted(common)),
        num_tree_tokens=sum(map(len, distinct)) - sum(common),
    )


def prefill_rounds(prefixes: Sequence[Tokens], max_prefixes: int) -> tuple[tuple[Tokens, ...], ...]:
    """The prefixes in as few rounds of at most ``max_prefixes`` as hold them, of sizes that differ by one at most.

    Neighbours stay together: sorted prefixes with a common beginning then meet in one round.
    """
    if not prefixes:
        return ()
    num_rounds = math.ceil(len(prefixes) / max(1, max_prefixes))
    cuts = [len(prefixes) * number // num_rounds for number in range(num_rounds + 1)]
    return tuple(tuple(prefixes[begin:end]) for begin, end in itertools.pairwise(cuts))


def common_length(one: Tokens, other: Tokens) -> int:
    """How many tokens both begin with; bisection over slices, which compare at the speed of C."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
