"""Ranks that are threads of a test, each with a model in a piece."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
TIMEOUT_S = 60.0


class ThreadRanks:
    """One of them. What they exchange stands on a board that all can read between two barriers."""

    def __init__(self, rank: int, size: int, board: list[Any], barrier: threading.Barrier) -> None:
        self.rank = rank
        self.size = size
        self._board = board
        self._barrier = barrier

    def total(self, values: Tensor) -> Tensor:
        return torch.stack(self._all(values)).sum(0)

    def largest(self, values: Sequence[float]) -> list[float]:
        return [max(each) for each in zip(*self._all(list(values)), strict=True)]

    def agreed(self, decision: bool) -> bool:
        return bool(self._all(decision)[0])

    def _all(self, mine: Any) -> list[Any]:
        self._board[self.rank] = mine
        self._barrier.wait(TIMEOUT_S)
        everyones = list(self._board)
        self._barrier.wait(TIMEOUT_S)
        return everyones


def on_all_ranks(size: int, work: Callable[[ThreadRanks], T]) -> list[T]:
    """What each rank's work gives; the first failure is raised."""
    board, barrier = [None] * size, threading.Barrier(size)

    def one(rank: int) -> T:
        # A setting of each thread.
        torch.set_num_threads(1)
        try:
            return work(ThreadRanks(rank, size, board, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as executor:
        return [future.result() for future in [executor.submit(one, rank) for rank in range(size)]]
