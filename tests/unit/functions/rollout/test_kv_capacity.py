"""Room for keys and values."""

from pathlib import Path

import pytest

from functions.rollout import kv_capacity
from functions.rollout.kv_capacity import free_host_bytes, kv_capacity_tokens
from shared.inference.prefix_kv import KvLayout

GIB = 2**30


def machine(folder: Path, *, available_bytes: int, limit: str | None = None, used: int = 0) -> tuple[Path, Path]:
    meminfo, cgroup = folder / "meminfo", folder / "cgroup"
    meminfo.write_text(f"MemTotal:       99999999 kB\nMemAvailable:   {available_bytes // 1024} kB\n")
    cgroup.mkdir()
    if limit is not None:
        (cgroup / "memory.max").write_text(limit + "\n")
        (cgroup / "memory.current").write_text(f"{used}\n")
    return meminfo, cgroup


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [
        (None, 0, 4 * GIB),
        ("max", GIB, 4 * GIB),
        (str(2 * GIB), GIB, GIB),
        (str(9 * GIB), GIB, 4 * GIB),
        (str(GIB), 2 * GIB, 0),
    ],
)
def test_the_nearer_limit_counts(tmp_path: Path, limit: str | None, used: int, free: int) -> None:
    assert free_host_bytes(*machine(tmp_path, available_bytes=4 * GIB, limit=limit, used=used)) == free


def test_a_machine_that_tells_nothing_has_no_known_room(tmp_path: Path) -> None:
    assert free_host_bytes(tmp_path / "meminfo", tmp_path / "cgroup") == 0


def test_room_is_a_share_of_the_free_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_capacity, "free_host_bytes", lambda: GIB)
    monkeypatch.setattr(kv_capacity.torch.cuda, "is_available", lambda: False)
    layout = KvLayout(num_layers=2, num_kv_heads=4, head_dim=8, dtype="bfloat16")
    assert layout.bytes_per_token == 256
    assert kv_capacity_tokens(layout) == int(0.9 * GIB) // 256
