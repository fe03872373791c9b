"""DAPO's soft overlong punishment: a penalty that rises towards the longest allowed completion.

DAPO (arXiv 2503.14476), eq. 13, with L_max the longest completion and L_cache the buffer before it: nothing up to
L_max − L_cache tokens, then linearly to −1 at L_max, where it stays; times a factor, as in verl. It replaces the cliff
at L_max, where sound reasoning that was cut looks as wrong as nonsense.

A length counts all tokens after the prompt. The reward that was scored stays as it is: it is what is reported as the
score, and what groups are filtered by.
"""

from collections.abc import Sequence

from functions.learner.credit_config import CreditConfig
from functions.learner.rows import TrainRow


def overlong_penalties(rows: Sequence[TrainRow], config: CreditConfig) -> list[float]:
    """What is taken off each completion's reward: not negative, 0 where the config asks for none. [B]"""
    if config.overlong_len is None or config.max_completion_tokens is None:
        return [0.0] * len(rows)
    begin, factor = config.max_completion_tokens - config.overlong_len, config.overlong_penalty_factor
    return [min(max(0, row.num_tokens - begin) / config.overlong_len, 1.0) * factor for row in rows]
