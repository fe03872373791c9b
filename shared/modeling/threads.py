"""How many cores a computation uses."""

import torch


def use_threads(num_threads: int) -> None:
    """Set the threads of the calling thread's computations. OpenMP keeps the setting per thread: call it there."""
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)
