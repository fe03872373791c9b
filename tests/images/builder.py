"""Builds the images with scripts/build-images and buildah, in a folder of its own, on a base made by mmdebstrap."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
CERTIFICATES = Path("/etc/ssl/certs")
BASE = "localhost/rlhfless-base"
USER = 65532
PACKAGES = "python3,python3-venv,ca-certificates"
STORAGE = """[storage]
driver = "vfs"
graphroot = "{folder}/images"
runroot = "{folder}/run"
"""


def missing() -> str | None:
    """Why no image can be built here, if none can."""
    if os.geteuid() != 0:
        return "chroot isolation needs root"
    absent = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """One store of images. ``wheels``: a folder that has PyTorch's CPU build, asked before its index."""

    folder: Path
    base_tar: Path | None
    wheels: Path | None

    def make_base(self) -> None:
        """Import Debian with Python, nothing else, as the base image."""
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        tar = self.base_tar or self.folder / "base.tar"
        if self.base_tar is None:
            self._run("mmdebstrap", "--variant=apt", f"--include={PACKAGES}", "bookworm", str(tar))
        name = self.buildah("from", "scratch").strip()
        self.buildah("add", "--quiet", name, str(tar), "/")
        self.buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", name)
        self.buildah("commit", "--quiet", "--rm", name, BASE)

    def build(self, image: str) -> str:
        """Build one of the images, and give its name."""
        certificates = f"--volume {CERTIFICATES}:{CERTIFICATES}:ro" if CERTIFICATES.is_dir() else ""
        options = ["--wheels", str(self.wheels)] if self.wheels else []
        variables = {"BASE": BASE, "BUILD_OPTIONS": f"--quiet --pull-never {certificates}"}
        if self.wheels:
            variables["TORCH_CPU_INDEX"] = ""
        self._run(
            str(REPOSITORY / "scripts" / "build-images"),
            *("--tool", "buildah", "--prefix", "localhost/rlhfless", "--tag", "test", *options, image),
            **variables,
        )
        return f"localhost/rlhfless/{image}:test"

    def buildah(self, *arguments: str) -> str:
        """What a command of buildah prints."""
        return self._run("buildah", *arguments)

    def inspect(self, image: str) -> dict[str, Any]:
        """The image's OCI configuration."""
        found = json.loads(self.buildah("inspect", "--type", "image", image))
        return dict(found["OCIv1"]["config"])

    def container(self, image: str) -> "Container":
        """A container of the image. It goes with the folder: to remove it alone takes longer."""
        return Container(builder=self, name=self.buildah("from", "--pull-never", image).strip())

    def remove(self) -> None:
        """Free the disk, unless something of this machine is still mounted in the folder."""
        if str(self.folder) not in Path("/proc/self/mounts").read_text(encoding="utf-8"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, **variables: str) -> dict[str, str]:
        """Of every command."""
        own = {"CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"), "BUILDAH_ISOLATION": "chroot"}
        return {**os.environ, **own, "TMPDIR": str(self.folder), **variables}

    def _run(self, *command: str, **variables: str) -> str:
        done = subprocess.run(command, env=self.environment(**variables), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr[-4000:]}"
        return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """Runs commands as the user that the manifests name, on the machine's own network."""

    builder: Builder
    name: str

    def output(self, *command: str) -> str:
        """What a command prints."""
        return self.builder.buildah("run", "--user", f"{USER}:{USER}", self.name, "--", *command)

    @contextlib.contextmanager
    def running(
        self, command: Sequence[str], *, environment: Mapping[str, str], mounts: Mapping[Path, str], log: Path
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process, for the length of a block. ``mounts``: where folders of this machine are seen."""
        variables = [option for name, value in environment.items() for option in ("--env", f"{name}={value}")]
        volumes = [option for source, place in mounts.items() for option in ("--volume", f"{source}:{place}")]
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["buildah", "run", "--user", f"{USER}:{USER}", *variables, *volumes, self.name, "--", *command],
                env=self.builder.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            # All of it: buildah, and what it runs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
