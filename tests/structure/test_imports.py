"""The controller and what it shares with the functions start without torch: seconds and gigabytes saved per pod."""

import subprocess
import sys

from tests.structure.source_tree import ROOT, python_files

TORCH_FREE = ("controller", "shared.contracts", "shared.store", "shared.observability", "shared.codec.json")

# Import contracts see only the first name of an outside package, so `safetensors.torch` passes them.
IMPORT_ALL = """
import importlib, sys
for name in ("torch", "transformers", "vllm"):
    sys.modules[name] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def torch_free_modules() -> list[str]:
    """Dotted names of the modules that must not need torch."""
    modules = []
    for path in python_files("controller", "shared"):
        parts = path.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name.startswith(TORCH_FREE) and parts[-1] != "__main__":
            modules.append(name)
    return modules


def test_modules_import_without_torch() -> None:
    modules = torch_free_modules()
    assert {"controller", "shared.contracts", "shared.store"} <= set(modules)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
