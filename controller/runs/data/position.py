"""Where a run stands in its data, as a pure value: rows go out once per epoch, also those that were drawn in vain."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.runs.data.dataset import Dataset
from controller.runs.data.sampler import Draw, Sampler
from controller.runs.errors import RunFailed
from shared.contracts.prompt import Prompt


@dataclass(frozen=True, slots=True)
class DataPosition:
    """What the next draw begins with."""

    cursor: int
    """Rows drawn from the sampler so far."""
    leftover: tuple[str, ...] = ()
    """Uids of rows that were drawn and not trained on; they go first."""

    def draw(self, dataset: Dataset, sampler: Sampler, count: int) -> tuple[tuple[Prompt, ...], "DataPosition"]:
        """The next ``count`` prompts, and the position behind them."""
        first = draws_of(self.leftover[:count], dataset)
        missing = count - len(first)
        rest = DataPosition(self.cursor + missing, self.leftover[count:])
        return dataset.take((*first, *sampler.draws(self.cursor, missing))), rest

    def with_leftover(self, row_uids: Sequence[str]) -> "DataPosition":
        """This position with rows given back, behind those that already wait."""
        return DataPosition(self.cursor, (*self.leftover, *row_uids))


def draws_of(row_uids: Sequence[str], dataset: Dataset) -> tuple[Draw, ...]:
    """The draws that rows' uids stand for (``train-000005.e1``: the row ``train-000005`` in epoch 1).

    Raises ``RunFailed`` for a row that the dataset does not have.
    """
    if not row_uids:
        return ()
    numbers = {prompt.row_uid: number for number, prompt in enumerate(dataset.prompts)}
    parts = [row_uid.rpartition(".e") for row_uid in row_uids]
    gone = [row for row, _, _ in parts if row not in numbers]
    if gone:
        raise RunFailed(f"row {gone[0]} waits to be drawn and is not in data.train_files any more: put it back, resume")
    return tuple(Draw(numbers[row], int(epoch)) for row, _, epoch in parts)
