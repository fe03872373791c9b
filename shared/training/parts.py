"""Between a whole tensor and a rank's part of it."""

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor in one piece. All ranks call it together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def part_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A copy of the whole tensor, cut, placed and typed as `like` is. No rank waits for another."""
    moved = tensor.to(like.device, like.dtype, copy=True)
    if not isinstance(like, DTensor):
        return moved
    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)
