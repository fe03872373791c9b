"""How many tokens' keys and values a replica has room for."""

from pathlib import Path

import torch

from shared.inference.prefix_kv import KvLayout

SHARE = 0.9
"""Of the free memory that keys and values may take; the rest is for activations and what else grows."""
MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
"""The container's own limit and use."""


def kv_capacity_tokens(layout: KvLayout) -> int:
    """Tokens that fit into the memory that is free now; 0 where that is not known."""
    free = free_gpu_bytes() if torch.cuda.is_available() else free_host_bytes()
    return int(SHARE * free) // layout.bytes_per_token


def free_gpu_bytes() -> int:
    """Free bytes of the current GPU, with those that this process holds without using them."""
    free, _ = torch.cuda.mem_get_info()
    return int(free) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def free_host_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Free bytes of the machine, or of the container where its limit is nearer; 0 where neither is told."""
    free = []
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free.append(int(fields["MemAvailable"].split()[0]) * 1024)
    limit, used = cgroup / "memory.max", cgroup / "memory.current"
    if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdigit():
        free.append(int(text) - int(used.read_text()))
    return max(0, min(free, default=0))
