"""Numbers on their way from the CPU's memory into tensors that lie where the model does."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

CHUNK_BYTES = 64 * 2**20
"""Of each of two buffers: large enough for the full speed of the bus, small beside any model that has a GPU."""


@torch.no_grad()
def copy_all(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy each pair's second tensor, on the CPU, into its first, in the first's place and dtype.

    It may be a view of a file (`tensor_views`): its pages are read once, into page-locked memory and from there to the
    GPU while the next ones are read, and it is widened there. No second copy of it lies on the CPU.
    """
    staging: Staging | None = None
    for target, source in pairs:
        if target.device.type != "cuda":
            target.copy_(source)
            continue
        staging = staging or Staging(target.device)
        staging.copy(target, source)
    if staging is not None:
        staging.finish()


class Staging:
    """Two buffers in page-locked memory: one is filled while the other is on its way."""

    def __init__(self, device: torch.device, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._device = device
        self._is_gpu = device.type == "cuda"
        self._buffers = [torch.empty(chunk_bytes, dtype=torch.uint8, pin_memory=self._is_gpu) for _ in range(2)]
        self._sent: list[torch.cuda.Event | None] = [None for _ in self._buffers]
        """When the last chunk has left each."""
        self._turn = 0

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Begin to copy; `source` may go when this returns, `target` is complete after `finish`."""
        if not target.is_contiguous():
            target.copy_(source)
            return
        to, numbers = target.view(-1), source.reshape(-1)
        size = max(1, self._buffers[0].numel() // source.dtype.itemsize)
        for start in range(0, math.prod(source.shape), size):
            self._send(to[start : start + size], numbers[start : start + size])

    def finish(self) -> None:
        """Wait for what is on its way: the buffers may then be freed."""
        for event in self._sent:
            if event is not None:
                event.synchronize()

    def _send(self, target: Tensor, source: Tensor) -> None:
        self._turn = 1 - self._turn
        event = self._sent[self._turn]
        if event is not None:
            event.synchronize()
        buffer = self._buffers[self._turn].view(source.dtype)[: source.numel()]
        buffer.copy_(source)
        if target.dtype == source.dtype:
            target.copy_(buffer, non_blocking=True)
        else:
            # Over the bus as it is: the other way round, it would be widened before.
            target.copy_(buffer.to(self._device, non_blocking=True))
        if self._is_gpu:
            self._sent[self._turn] = torch.cuda.current_stream(self._device).record_event()
