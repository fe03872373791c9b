"""The machine itself: versions, memory, flags that change results, and what a plain matrix product reaches."""

import platform
import shutil
from pathlib import Path
from typing import Any

import safetensors
import torch
import transformers

from scripts.gpu_check.figures import Figures, Timer
from scripts.gpu_check.plan import Section

SHARED_MEMORY = Path("/dev/shm")
MATRIX_SIZES = {"cuda": 8192, "cpu": 128}
COPY_BYTES = {"cuda": 2**30, "cpu": 2**20}
PRODUCTS = 10


def measure(section: Section, figures: Figures) -> None:
    """Describe the machine, then time one matrix product and copies to and from the device."""
    device = torch.device(section.device)
    figures.add(**described(device))
    figures.add(matrix_tflops=matrix_tflops(device), matrix_size=MATRIX_SIZES[device.type])
    timer = Timer(device)
    there = torch.empty(COPY_BYTES[device.type], dtype=torch.uint8, device=device)
    here = torch.empty(there.shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
    num_gb = there.numel() / 1e9
    figures.add(
        to_device_gb_per_s=num_gb / timer.best(lambda: there.copy_(here), 3),
        to_host_gb_per_s=num_gb / timer.best(lambda: here.copy_(there), 3),
    )


def matrix_tflops(device: torch.device) -> float:
    """What products of two large bfloat16 matrices reach."""
    size = MATRIX_SIZES[device.type]
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(PRODUCTS):
            torch.mm(left, right)

    products()
    return 2 * size**3 * PRODUCTS / Timer(device).best(products, 3) / 1e12


def described(device: torch.device) -> dict[str, Any]:
    """Versions, memory and flags."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "safetensors": safetensors.__version__,
        "threads": torch.get_num_threads(),
        "free_host_bytes": free_host_bytes(),
        "free_shared_memory_bytes": shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0,
        "allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "allow_bf16_reduced_precision_reduction": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "device": device.type,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "gpu": properties.name,
            "gpu_bytes": properties.total_memory,
            "num_multiprocessors": properties.multi_processor_count,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
        }
    return facts


def free_host_bytes() -> int:
    """Memory that new work can take, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
