"""Addressed randomness: golden values, sensitivity to every part of the address, and uniformity."""

import math

import pytest
import torch

from shared.modeling.randomness import address_seed, uniforms

ADDRESS = {"run_seed": 7, "purpose": "train", "step": 3, "round": 0, "row_uid": "addition-12", "sample": 5}


def _chi_square(counts: torch.Tensor) -> float:
    expected = counts.sum() / counts.numel()
    return float(((counts - expected) ** 2 / expected).sum())


def _limit(cells: int) -> float:
    """Five standard deviations above the mean of a chi-square with `cells - 1` degrees of freedom."""
    return cells - 1 + 5 * math.sqrt(2 * (cells - 1))


def test_golden_values_keep_recorded_runs_reproducible() -> None:
    assert address_seed(**ADDRESS) == 2551402451184944279
    expected = [0.8833108082136426, 0.37239342287916577, 0.2022834577098802, 0.7938595091307863]
    result = uniforms(torch.tensor([0, 1, 2**63 - 1, -1]), torch.tensor([0, 1, 4096, 2**31]))
    assert result.tolist() == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [("run_seed", 8), ("purpose", "eval"), ("step", 4), ("round", 1), ("row_uid", "addition-1"), ("sample", 2)],
)
def test_every_part_of_the_address_changes_the_seed(field: str, value: object) -> None:
    assert address_seed(**{**ADDRESS, field: value}) != address_seed(**ADDRESS)


def test_neighbouring_fields_do_not_run_into_each_other() -> None:
    assert address_seed(1, "train", 1, 0, "1", 11) != address_seed(1, "train", 1, 0, "11", 1)
    assert address_seed(1, "train", 11, 0, "r", 0) != address_seed(1, "train", 1, 10, "r", 0)


def test_seeds_fit_a_signed_64_bit_integer() -> None:
    seeds = [address_seed(1, "train", 0, 0, "r", sample) for sample in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 1000
    assert max(seeds).bit_length() == 63


def test_matches_splitmix64_in_unbounded_arithmetic() -> None:
    def mix(bits: int) -> int:
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        return bits ^ bits >> 31

    for seed, position in [(0, 0), (-1, 3), (2**63 - 1, 10**6), (123456789, 77)]:
        bits = mix((mix(seed % 2**64) + (position + 1) * 0x9E3779B97F4A7C15) % 2**64)
        assert uniforms(torch.tensor([seed]), torch.tensor([position])).item() == (bits >> 11) / 2**53


def test_broadcasts_seeds_against_positions() -> None:
    seeds, positions = torch.tensor([3, 9]), torch.arange(4)
    table = uniforms(seeds[:, None], positions)
    assert table.shape == (2, 4)
    assert table[1, 2] == uniforms(seeds[1:], positions[2:3])[0]


@pytest.mark.parametrize("which", ["seeds", "positions", "addresses"])
def test_values_are_uniform(which: str) -> None:
    if which == "seeds":
        values = uniforms(torch.arange(200_000), torch.zeros(1, dtype=torch.int64))
    elif which == "positions":
        values = uniforms(torch.tensor([42]), torch.arange(200_000))
    else:
        addresses = [address_seed(1, "train", 0, 0, f"r{row}", sample) for row in range(500) for sample in range(8)]
        values = uniforms(torch.tensor(addresses)[:, None], torch.arange(50)).flatten()
    assert values.min() >= 0
    assert values.max() < 1
    assert _chi_square(torch.histc(values, 256, 0, 1)) < _limit(256)


@pytest.mark.parametrize("seed_stride", [1, 2, 1 << 32, 0x9E3779B97F4A7C15 - (1 << 64)])
@pytest.mark.parametrize("position_stride", [0, 1])
def test_neighbours_are_independent(seed_stride: int, position_stride: int) -> None:
    """Pairs (u, neighbour's u) fill a 32 x 32 grid evenly."""
    seeds = torch.arange(1000)[:, None] * 1_000_003
    positions = torch.arange(200)
    first = uniforms(seeds, positions).flatten()
    second = uniforms(seeds + seed_stride, positions + position_stride).flatten()
    cells = (first * 32).long() * 32 + (second * 32).long()
    assert _chi_square(torch.bincount(cells, minlength=1024).double()) < _limit(1024)
