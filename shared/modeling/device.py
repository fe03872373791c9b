"""Where a replica computes."""

import torch


def compute_device() -> torch.device:
    """The GPU where the replica has one, else the CPU. A stage of one process has one GPU: its container's first."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
