"""What n samples of each held-out row tell of a policy. Pure; every estimate is exact, none is drawn.

Shapes: a group has the n samples of one row. verl's names: ``val-core/{data_source}/reward/...`` for each source of
the rows (``unknown`` where they name none) and ``val-core/reward/...`` over all rows, each row weighing the same.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

UNKNOWN_SOURCE = "unknown"
"""verl's name for rows without a data source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """One scored sample."""

    reward: float
    answer: str | None = None
    """What a verifier read out of it; ``None`` where nothing was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedRow:
    """A held-out row and its samples."""

    data_source: str
    samples: tuple[Sampled, ...]


def evaluation_metrics(rows: Sequence[EvaluatedRow], *, success_reward: float) -> dict[str, float]:
    """All metrics of an evaluation. Without rows there are none.

    ``mean@n``, ``best@n/mean``, ``pass@k`` for k = 1, 2, 4... and n, and ``maj@n/mean`` where answers were read.
    Best of fewer than n is in ``val-aux``, as in verl.
    """
    by_source: dict[str, list[EvaluatedRow]] = defaultdict(list)
    for row in rows:
        by_source[row.data_source or UNKNOWN_SOURCE].append(row)
    metrics = _metrics_of(rows, "reward", success_reward)
    for source, of_source in sorted(by_source.items()):
        metrics |= _metrics_of(of_source, f"{source}/reward", success_reward)
    return metrics


def pass_at_k(num_samples: int, num_solved: int, k: int) -> float:
    """Chance that k of the samples, drawn without replacement, have a solved one: 1 − C(n−c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374), section 2.1. ``1 ≤ k ≤ num_samples``.
    """
    return 1.0 - comb(num_samples - num_solved, k) / comb(num_samples, k)


def best_of_k(rewards: Sequence[float], k: int) -> float:
    """Expected best reward of k of the samples, drawn without replacement: the i-th smallest of n is the best of
    C(i−1, k−1) of the C(n, k) draws. ``1 ≤ k ≤ n``."""
    n = len(rewards)
    ordered = enumerate(sorted(rewards), start=1)
    return sum(reward * comb(i - 1, k - 1) for i, reward in ordered) / comb(n, k)


def majority_reward(samples: Sequence[Sampled]) -> float:
    """Mean reward of the samples whose answer is given most often. Samples without an answer do not vote.

    Where several answers are given equally often each is the majority with the same chance. Where none is given there
    is nothing to vote for, and the mean of all is taken.
    """
    by_answer: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.answer is not None:
            by_answer[sample.answer].append(sample.reward)
    if not by_answer:
        return _mean([sample.reward for sample in samples])
    most = max(map(len, by_answer.values()))
    return _mean([_mean(rewards) for rewards in by_answer.values() if len(rewards) == most])


def numbers_of_samples(n: int) -> list[int]:
    """1, 2, 4, ... up to n, and n itself."""
    powers = [1 << exponent for exponent in range(n.bit_length())]
    return powers if powers[-1] == n else [*powers, n]


def _metrics_of(rows: Sequence[EvaluatedRow], name: str, success_reward: float) -> dict[str, float]:
    if not rows:
        return {}
    n = min(len(row.samples) for row in rows)
    rewards = [[sample.reward for sample in row.samples] for row in rows]
    solved = [sum(reward >= success_reward for reward in group) for group in rewards]
    metrics = {f"val-core/{name}/mean@{n}": _mean([_mean(group) for group in rewards])}
    for k in numbers_of_samples(n):
        passed = [pass_at_k(len(group), c, k) for group, c in zip(rewards, solved, strict=True)]
        metrics[f"val-core/{name}/pass@{k}"] = _mean(passed)
        if k > 1:
            kind = "core" if k == n else "aux"
            metrics[f"val-{kind}/{name}/best@{k}/mean"] = _mean([best_of_k(group, k) for group in rewards])
    if any(sample.answer is not None for row in rows for sample in row.samples):
        metrics[f"val-core/{name}/maj@{n}/mean"] = _mean([majority_reward(row.samples) for row in rows])
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
