"""The task: multiply two numbers of two digits with a calculator.

    prompt        37*48=
    first turn    <calc>37*48</calc>
    inserted      <result>1776</result>
    second turn   #1776

Only the answer is rewarded; that the calculator helps is for the model to find out.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass

LOWEST, HIGHEST = 11, 99


@dataclass(frozen=True, slots=True, order=True)
class Product:
    """One problem."""

    left: int
    right: int

    @property
    def prompt(self) -> str:
        """What the model is given."""
        return f"{self.left}*{self.right}="

    @property
    def answer(self) -> str:
        """The ground truth."""
        return str(self.left * self.right)

    @property
    def question(self) -> str:
        """A right first turn."""
        return f"<calc>{self.left}*{self.right}</calc>"

    @property
    def result(self) -> str:
        """What the calculator inserts after it."""
        return f"<result>{self.answer}</result>"

    @property
    def conclusion(self) -> str:
        """A right second turn."""
        return f"#{self.answer}"


def sample_products(count: int, seed: int, excluded: Collection[Product] = ()) -> list[Product]:
    """`count` different problems, none of them in `excluded`, in random order."""
    generator, banned = random.Random(seed), set(excluded)
    chosen: dict[Product, None] = {}
    while len(chosen) < count:
        problem = Product(generator.randint(LOWEST, HIGHEST), generator.randint(LOWEST, HIGHEST))
        if problem not in banned:
            chosen[problem] = None
    return list(chosen)


def heldout_products() -> list[Product]:
    """The 128 problems that nothing is ever trained on."""
    return sample_products(128, seed=0)
