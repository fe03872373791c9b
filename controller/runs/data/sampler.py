"""The order of the rows, as a pure function: a resumed run reads the same rows as one that never stopped.

The rows of all epochs form one endless line, each epoch a permutation of its own. A batch is the next piece of that
line and runs over the end of an epoch, so every row is used exactly once per epoch whatever the batch size is. The
cursor is the number of rows already used: one integer, kept in the head of the run.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class Draw:
    """One use of a row. In a batch that is larger than the dataset a row is drawn again, of a later epoch."""

    row: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """The order of ``num_rows`` rows in batches of ``batch_size``."""

    num_rows: int
    batch_size: int
    seed: int
    shuffle: bool

    def __post_init__(self) -> None:
        if self.num_rows < 1 or self.batch_size < 1:
            raise ValueError(f"{self.num_rows} rows in batches of {self.batch_size} have no order")

    def batch(self, step: int) -> tuple[Draw, ...]:
        """The rows of a step."""
        return self.draws(self.cursor(step), self.batch_size)

    def cursor(self, step: int) -> int:
        """Rows used before a step."""
        return step * self.batch_size

    def draws(self, cursor: int, count: int) -> tuple[Draw, ...]:
        """The ``count`` rows after the first ``cursor`` ones."""
        return tuple(self._draw(position) for position in range(cursor, cursor + count))

    def _draw(self, position: int) -> Draw:
        epoch, place = divmod(position, self.num_rows)
        return Draw(_permutation(self.num_rows, self.seed, epoch)[place] if self.shuffle else place, epoch)


@lru_cache(maxsize=8)
def _permutation(num_rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    """Rows sorted by a hash of (seed, epoch, row): the same on every machine and in every version of Python."""

    def noise(row: int) -> bytes:
        return blake2b(f"{seed}/{epoch}/{row}".encode(), digest_size=16).digest()

    return tuple(sorted(range(num_rows), key=noise))
