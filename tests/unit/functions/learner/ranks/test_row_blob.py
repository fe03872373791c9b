from dataclasses import fields, replace

import numpy as np
import pytest

from functions.learner.ranks.row_blob import decode_rows, encode_rows
from functions.learner.rows import TrainRow
from shared.training.errors import DamagedState
from tests.unit.functions.learner.builders import ragged_rows, with_numbers


def test_rows_come_back_exactly_with_what_some_of_them_lack() -> None:
    rows = with_numbers(ragged_rows(), "values")
    rows[1] = with_numbers([rows[1]], "reference_logprobs")[0]
    rows[2] = replace(rows[2], reward=None, finish_reason="length", values=None, round=3)

    restored = decode_rows(encode_rows(rows))

    assert len(restored) == len(rows)
    for row, other in zip(rows, restored, strict=True):
        for field in fields(TrainRow):
            ours, theirs = getattr(row, field.name), getattr(other, field.name)
            assert type(ours) is type(theirs), field.name
            assert np.array_equal(ours, theirs), field.name
            assert not isinstance(ours, np.ndarray) or ours.dtype == theirs.dtype


def test_other_bytes_are_refused() -> None:
    with pytest.raises(DamagedState):
        decode_rows(b"{}")
