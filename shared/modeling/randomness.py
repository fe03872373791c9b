"""Randomness with an address: a sampled token's noise depends on where the token stands, not on who draws it.

A sequence's address (run seed, purpose, step, round, row uid, sample) hashes to its seed; seed and token
position give one uniform number. No generator has state, so the number of actors, a crash or a migration
changes nothing.
"""

import hashlib
import json

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def address_seed(run_seed: int, purpose: str, step: int, round: int, row_uid: str, sample: int) -> int:
    """The seed of one sequence: 63 bits of BLAKE2b over the address as canonical JSON, in [0, 2^63).

    The sign bit stays free, so that the seed fits an int64 tensor, JSON and the per-request seed of other
    engines alike.
    """
    address = json.dumps([run_seed, purpose, step, round, row_uid, sample], separators=(",", ":"))
    digest = hashlib.blake2b(address.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def uniforms(seeds: Tensor, positions: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) with 53 bits, float64, one per (seed, position).

    `seeds` and `positions` are int64 and broadcast against each other (`[B]`, or `[B, 1]` against `[T]`);
    positions count from 0. The mixer is SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable
    pseudorandom number generators", 2014), applied to the seed and then to seed + position.
    """
    mixed = _mix(_mix(seeds) + (positions + 1) * _signed(_GAMMA))
    return _shift_right(mixed, 11).to(torch.float64) * 2.0**-53


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift_right(bits, 30)) * _signed(_MIX_1)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(_MIX_2)
    return bits ^ _shift_right(bits, 31)


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift: int64 tensors shift arithmetically, so the copies of the sign bit are cut off."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _signed(constant: int) -> int:
    """The int64 with the same 64 bits; int64 products wrap, which is what the mixer wants."""
    return constant - (1 << 64) if constant >> 63 else constant
