"""How a batch is cut into calls of the stages that judge completions: reward, reference, critic. Pure.

A call has to end within the platform's time, queue and cold start included, so it is bounded by what it computes: its
completions and the tokens that they may have. The cut depends on the config and the batch alone, so that calls made
again after a crash have the same keys and bodies.
"""

from collections.abc import Sequence

COMPLETIONS_PER_CALL = 512
"""Completions of one call: even one after another, at half a second each, they end within the shortest limit that
platforms set, which is 300 s."""
TOKENS_PER_CALL = 2**20
"""Tokens of one call, were all prompts and completions as long as allowed: 1.5·10^16 operations of a forward pass of
7·10^9 parameters, which is about a minute of a large GPU."""


def cut_into_shards(row_uids: Sequence[str], *, num_samples: int, sequence_tokens: int) -> tuple[tuple[str, ...], ...]:
    """Contiguous rows by call, with ``num_samples`` completions each of at most ``sequence_tokens`` with their prompt.

    A row's completions are compared with each other, so they stay in one call, however many they are.
    """
    completions = min(COMPLETIONS_PER_CALL, TOKENS_PER_CALL // sequence_tokens)
    size = max(1, completions // num_samples)
    return tuple(tuple(row_uids[start : start + size]) for start in range(0, len(row_uids), size))
