"""A local platform with echo functions in a process of its own, so that its memory is nobody else's."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.settings import LocalSettings
from scripts.local_stack import REPOSITORY

MANIFEST = Path(__file__).parent / "echo" / "echo.yaml"
FUNCTION = "echo"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPlatform:
    """Where it listens, and its process."""

    port: int
    pid: int

    def rss_mib(self) -> float:
        """Memory that it holds now."""
        resident = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return resident * _PAGE_BYTES / 2**20


@contextlib.contextmanager
def running_platform(folder: Path, *, num_replicas: int) -> Iterator[RunningPlatform]:
    """Run it with so many replicas until the end of the block."""
    manifest = yaml.safe_load(MANIFEST.read_text())
    annotations = manifest["spec"]["template"]["metadata"]["annotations"]
    for bound in ("min-scale", "max-scale"):
        annotations[f"autoscaling.knative.dev/{bound}"] = str(num_replicas)
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests" / MANIFEST.name).write_text(yaml.safe_dump(manifest))
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.benchmarks.proxy_platform", str(folder)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the platform has no pipes")
        line = process.stdout.readline()
        if not line:
            raise RuntimeError("the platform did not start; what it said is above")
        yield RunningPlatform(port=urlsplit(json.loads(line)["url"]).port or 0, pid=process.pid)
        process.stdin.close()


async def run(folder: Path) -> None:
    """Start, print the address, and stop when the standard input ends."""
    settings = LocalSettings(
        manifests_dir=folder / "manifests",
        log_dir=folder / "logs",
        num_cpus=64,
        memory_bytes=2**40,
        base_environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        python=sys.executable,
        preload=("uvicorn", "uvicorn.loops.auto", "uvicorn.protocols.http.auto"),
    )
    async with LocalPlatform(settings) as platform:
        print(json.dumps({"url": platform.url}), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
