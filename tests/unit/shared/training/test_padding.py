import numpy as np
import torch

from shared.training.padding import pad_to_batch


def test_rows_are_padded_on_the_right_and_keep_their_type() -> None:
    padded = pad_to_batch([np.array([True]), np.array([True, False, True])])

    assert torch.equal(padded, torch.tensor([[True, False, False], [True, False, True]]))


def test_the_arrays_are_copied() -> None:
    array = np.array([1.0, 2.0], np.float32)

    pad_to_batch([array])[0, 0] = 9.0

    assert array[0] == 1.0
