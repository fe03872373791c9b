"""The ranks of a replica as processes: one GPU each, or a share of the cores, joined by torch.distributed."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, ProcessGroupGloo
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

JOIN_TIMEOUT = timedelta(minutes=10)
"""Also the longest that a rank waits for another in an exchange: far beyond any micro-batch."""
RENDEZVOUS = "ranks"
"""Name of the file by which the ranks find each other."""


class ProcessRanks:
    """The ranks as one of them sees them, after all have joined."""

    def __init__(
        self, rank: int, size: int, device: torch.device, mesh: DeviceMesh, control: dist.ProcessGroup
    ) -> None:
        self.rank = rank
        self.size = size
        self.device = device
        self.mesh = mesh
        self._world = _world()
        self._control = control

    def total(self, values: Tensor) -> Tensor:
        """The sum over the ranks, by element."""
        totals = values.clone()
        dist.all_reduce(totals, group=self._control)
        return totals

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest over the ranks, by element."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self._control)
        numbers: list[float] = tensor.tolist()
        return numbers

    def agreed(self, decision: bool) -> bool:
        """Rank 0's decision."""
        tensor = torch.tensor([decision], dtype=torch.uint8)
        dist.broadcast(tensor, 0, group=self._control)
        return bool(tensor.item())

    def from_first(self, tensor: Tensor) -> Tensor:
        """Rank 0's tensor in place of everyone's, on the rank's device."""
        dist.broadcast(tensor, 0)
        return tensor

    def abort(self) -> None:
        """Have exchanges with a rank that has died end with an error. From any thread; gloo does so by itself."""
        if self.device.type == "cuda":
            self._world.abort()

    def leave(self) -> None:
        """End the group."""
        dist.destroy_process_group()


def rank_device(rank: int) -> torch.device:
    """The rank's own GPU, where there are any."""
    return torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")


def join(rendezvous: Path, rank: int, size: int) -> ProcessRanks:
    """Join the other ranks; returns when all have. To be called on the thread that computes.

    Exchanges between GPUs go by NCCL; those of small numbers by gloo, over the loopback interface.
    """
    device = rank_device(rank)
    store = FileStore(str(rendezvous / RENDEZVOUS), size)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=size, timeout=JOIN_TIMEOUT, device_id=device)
        control = _new_group(backend="gloo", pg_options=_loopback(), timeout=JOIN_TIMEOUT)
    else:
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=JOIN_TIMEOUT, pg_options=_loopback()
        )
        control = _world()
    return ProcessRanks(rank, size, device=device, mesh=init_device_mesh(device.type, (size,)), control=control)


def _new_group(**options: Any) -> dist.ProcessGroup:
    group = dist.new_group(**options)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _world() -> dist.ProcessGroup:
    world = dist.group.WORLD
    assert isinstance(world, dist.ProcessGroup)
    return world


def _loopback() -> Any:
    # The type of these options is not among torch's stubs.
    gloo: Any = ProcessGroupGloo
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname="127.0.0.1")]
    options._timeout = JOIN_TIMEOUT
    return options
