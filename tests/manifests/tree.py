"""The kustomizations below deploy/, as they lie there and as kubectl builds them."""

import copy
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Document = dict[str, Any]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BASE = DEPLOY / "base"
FUNCTIONS = BASE / "functions"
COMPONENTS = sorted((DEPLOY / "components").iterdir())
OVERLAYS = sorted((DEPLOY / "overlays").iterdir())
KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed, and it renders the overlays")


def documents(file: Path) -> list[Document]:
    """All YAML documents of a file."""
    return _parsed(file.read_text(encoding="utf-8"))


def kustomization(folder: Path) -> Document:
    """A folder's kustomization.yaml."""
    [found] = documents(folder / "kustomization.yaml")
    return found


def header(folder: Path) -> str:
    """The comment that a folder's kustomization.yaml begins with, as one line."""
    text = (folder / "kustomization.yaml").read_text(encoding="utf-8")
    lines = text[: text.index("apiVersion:")].splitlines()
    return " ".join(line.lstrip("# ") for line in lines)


def base_documents() -> list[Document]:
    """What the base applies, but for the namespace that kustomize fills in: read without kubectl."""
    return [found for name in kustomization(BASE)["resources"] for found in documents(BASE / name)]


def parts(folder: Path) -> list[Path]:
    """A kustomization, and all that it builds on."""
    content = kustomization(folder)
    below = [(folder / name).resolve() for key in ("resources", "components") for name in content.get(key, ())]
    return [folder, *(part for other in below if other.is_dir() for part in parts(other))]


def cluster_patches(folder: Path) -> dict[str, Document]:
    """What an administrator has to change for a kustomization, by file name: patches of Knative's own objects."""
    found: dict[str, Document] = {}
    for part in parts(folder):
        for file in part.glob("*.patch.yaml"):
            [patch] = documents(file)
            for key, value in patch.items():
                found.setdefault(file.name, {}).setdefault(key, {}).update(value)
    return found


def built(folder: Path) -> list[Document]:
    """What ``kubectl kustomize`` makes of a folder, for the caller to change as it likes."""
    return copy.deepcopy(_built(folder))


def composed(*components: str, extra: str = "", namespace: str = "rlhfless") -> list[Document]:
    """What an overlay of a user's own builds, with these components and further lines on the base."""
    return copy.deepcopy(_composed(components, extra, namespace))


@cache
def _built(folder: Path) -> list[Document]:
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _parsed(done.stdout)


@cache
def _composed(components: tuple[str, ...], extra: str, namespace: str) -> list[Document]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        # kustomize takes relative paths only.
        to_deploy = Path(*[".."] * (len(folder.parts) - 1), *DEPLOY.parts[1:])
        content: Document = {"namespace": namespace, "resources": [str(to_deploy / "base")]}
        content["components"] = [str(to_deploy / "components" / component) for component in components]
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(content) + extra)
        return _built(folder)


def _parsed(text: str) -> list[Document]:
    # The parser in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [found for found in yaml.load_all(text, Loader=loader) if found is not None]
