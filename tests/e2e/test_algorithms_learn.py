"""The demo learns under every algorithm. A run takes minutes."""

import pytest
from rich.console import Console

from scripts.benchmarks.algorithms import ALGORITHMS, run_one

CHANCE = 0.05
"""Held-out accuracy varies by about this between evaluations of one policy."""


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_held_out_accuracy_rises_well_beyond_chance(algorithm: str) -> None:
    result = run_one(algorithm, seed=0, steps=150, console=Console(quiet=True))
    assert result["accuracy_after"] > result["accuracy_before"] + 3 * CHANCE
