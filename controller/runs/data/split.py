"""Held-out rows taken away from training rows: which ones, as a pure function of the seed and the rows."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from controller.runs.data.dataset import Dataset
from controller.runs.data.errors import DatasetEmpty
from shared.contracts.prompt import Prompt

FIELD = "data.val_split"


def hold_out(dataset: Dataset, share: int | float, seed: int) -> tuple[Dataset, Dataset]:
    """Training and held-out rows of ``dataset``, in file order. ``share`` is a number of rows, or a part of them.

    Prompts are taken in the order of a hash of (seed, prompt), so neither the order of the rows nor of the files
    matters. Rows with the same prompt stay together: what is evaluated is never trained on. A set of them that would
    exceed the number is passed over. Raises ``DatasetEmpty`` where nothing would be held out, or nothing left.
    """
    rows = dataset.prompts
    wanted = share if isinstance(share, int) else round(share * len(rows))
    if not 1 <= wanted < len(rows):
        kind = "no training row" if wanted >= len(rows) else "no held-out row"
        raise DatasetEmpty(
            field=FIELD,
            reason=f"{share:g} of {len(rows)} rows leaves {kind}",
            suggestion=f"use a number of rows from 1 to {len(rows) - 1}" if len(rows) > 1 else "give data.val_files",
        )
    same: dict[tuple[int, ...], list[int]] = {}
    for number, prompt in enumerate(rows):
        same.setdefault(prompt.token_ids, []).append(number)
    taken: set[int] = set()
    for numbers in sorted(same.values(), key=lambda numbers: _noise(seed, rows[numbers[0]].token_ids)):
        if len(taken) + len(numbers) <= wanted:
            taken.update(numbers)
    if not taken:
        raise DatasetEmpty(
            field=FIELD,
            reason=f"every prompt is in more than {wanted} rows, and rows with the same prompt stay together",
            suggestion="hold out more rows, or drop repeated ones",
        )
    fewer = "" if len(taken) == wanted else f" ({wanted} asked for; rows with the same prompt stay together)"
    held_out = replace(
        dataset,
        split="val",
        prompts=tuple(_held_out(rows[number]) for number in sorted(taken)),
        num_filtered=0,
        note=f"val: {len(taken)} of {len(rows)} training rows are held out by data.val_split, seed {seed}{fewer}",
    )
    kept = tuple(prompt for number, prompt in enumerate(rows) if number not in taken)
    return replace(dataset, prompts=kept, note=f"{dataset.note}; {len(kept)} are trained on"), held_out


def num_shared(train: Sequence[Prompt], heldout: Sequence[Prompt]) -> int:
    """Held-out rows whose prompt is trained on too."""
    trained = {prompt.token_ids for prompt in train}
    return sum(prompt.token_ids in trained for prompt in heldout)


def _noise(seed: int, token_ids: tuple[int, ...]) -> bytes:
    return blake2b(f"{seed}/{','.join(map(str, token_ids))}".encode(), digest_size=16).digest()


def _held_out(prompt: Prompt) -> Prompt:
    return prompt.model_copy(update={"row_uid": prompt.row_uid.replace("train-", "val-", 1)})
