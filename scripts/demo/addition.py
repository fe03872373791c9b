"""The demo's task: add two numbers of three digits, digit by digit on a scratchpad.

    prompt      966+358:
    completion  6+8+0=14,6+5+1=12,9+3+1=13#1324

Each term adds two digits and the carry, lowest digits first; the answer follows the mark. Only the answer is
rewarded (rule `exact_number`); the scratchpad is how a small model can get there.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass

LOWEST, HIGHEST = 100, 999
ALPHABET = "0123456789+:=,#"
MAX_COMPLETION_CHARACTERS = len("9+9+0=18,9+9+1=19,9+9+1=19#1998")


@dataclass(frozen=True, slots=True, order=True)
class Addition:
    """One problem."""

    left: int
    right: int

    @property
    def prompt(self) -> str:
        """What the model is given."""
        return f"{self.left}+{self.right}:"

    @property
    def answer(self) -> str:
        """The ground truth."""
        return str(self.left + self.right)

    @property
    def demonstration(self) -> str:
        """The completion with a correct scratchpad."""
        terms, carry = [], 0
        for a, b in zip(reversed(str(self.left)), reversed(str(self.right)), strict=True):
            total = int(a) + int(b) + carry
            terms.append(f"{a}+{b}+{carry}={total}")
            carry = total // 10
        return f"{','.join(terms)}#{self.answer}"


def sample_additions(count: int, seed: int, excluded: Collection[Addition] = ()) -> list[Addition]:
    """`count` different problems, none of them in `excluded`, in random order."""
    generator, banned = random.Random(seed), set(excluded)
    chosen: dict[Addition, None] = {}
    while len(chosen) < count:
        problem = Addition(generator.randint(LOWEST, HIGHEST), generator.randint(LOWEST, HIGHEST))
        if problem not in banned:
            chosen[problem] = None
    return list(chosen)


def heldout_additions() -> list[Addition]:
    """The 256 problems that nothing is ever trained on."""
    return sample_additions(256, seed=0)
