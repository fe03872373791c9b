"""Where a replica computes, and in which dtype."""

from collections.abc import Mapping
from types import MappingProxyType

import torch

from shared.contracts.training_pass import Precision

TORCH_DTYPES: Mapping[Precision, torch.dtype] = MappingProxyType({"float32": torch.float32, "bfloat16": torch.bfloat16})
"""What the contracts' words mean. The controller decides on them, for all functions alike: a policy's digest is of
weights in one dtype, and a default that followed the machine would make one config two runs."""


def compute_device() -> torch.device:
    """The GPU where the replica has one, else the CPU. A stage of one process has one GPU: its container's first."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
