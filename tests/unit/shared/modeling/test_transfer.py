"""Numbers go by two buffers in turn, in pieces, and arrive as they were."""

import pytest
import torch

from shared.modeling.transfer import Staging, copy_all

CHUNK_BYTES = 64


@pytest.mark.parametrize("shape", [(3, 50), (16,), (1,), (0, 4), ()])
@pytest.mark.parametrize("source_dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("target_dtype", [torch.float32, torch.bfloat16])
def test_what_goes_by_the_buffers_arrives(
    shape: tuple[int, ...], source_dtype: torch.dtype, target_dtype: torch.dtype
) -> None:
    staging = Staging(torch.device("cpu"), CHUNK_BYTES)
    sources = [torch.randn(shape).mul(9).to(source_dtype) for _ in range(3)]
    targets = [torch.full(shape, 7.0, dtype=target_dtype) for _ in sources]
    for target, source in zip(targets, sources, strict=True):
        staging.copy(target, source)
    staging.finish()
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target, source.to(target_dtype))


def test_a_part_of_a_larger_matrix_is_filled_and_nothing_beside_it() -> None:
    whole = torch.zeros(6, 8)
    rows, columns = whole[1:3], whole[:, 5:7]
    assert (rows.is_contiguous(), columns.is_contiguous()) == (True, False)
    staging = Staging(torch.device("cpu"), CHUNK_BYTES)
    staging.copy(rows, torch.ones(2, 8))
    assert whole.sum() == 16
    staging.copy(columns, torch.full((6, 2), 2.0))
    assert torch.equal(columns, torch.full((6, 2), 2.0))
    assert whole.sum() == 16 - 4 + 24


def test_a_parameter_is_filled_in_place() -> None:
    parameter = torch.nn.Parameter(torch.zeros(5))
    copy_all([(parameter, torch.arange(5, dtype=torch.bfloat16))])
    assert parameter.tolist() == [0, 1, 2, 3, 4]
