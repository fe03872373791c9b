"""Metrics of a round, summed over the ranks exactly: sums with sums, weights with weights, maxima with maxima."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from functions.learner.ranks.group import Ranks
from shared.training.metric_sums import MetricSums


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """A round's metrics over all ranks."""

    sums: MetricSums
    terms: dict[str, float]

    def add_to(self, sums: MetricSums, terms: dict[str, float]) -> None:
        """Add them to those of the rounds before."""
        for name, (total, weight) in self.sums.sums.items():
            sums.add({name: total}, weight)
        sums.add_maxima(self.sums.maxima)
        for name, value in self.terms.items():
            terms[name] = terms.get(name, 0.0) + value


def reduced(ranks: Ranks, sums: MetricSums, terms: Mapping[str, float]) -> Reduced:
    """Every rank brings the same names: one without rows has zeros that weigh nothing."""
    if ranks.size == 1:
        return Reduced(sums=sums, terms=dict(terms))
    names = sorted(sums.sums)
    flat = [number for name in names for number in sums.sums[name]] + [terms[name] for name in sorted(terms)]
    totals = iter(ranks.total(torch.tensor(flat, dtype=torch.float64)).tolist())
    added = {name: (next(totals), next(totals)) for name in names}
    added_terms = {name: next(totals) for name in sorted(terms)}
    largest = ranks.largest([sums.maxima[name] for name in sorted(sums.maxima)])
    maxima = dict(zip(sorted(sums.maxima), largest, strict=True))
    return Reduced(sums=MetricSums(added, maxima), terms=added_terms)
