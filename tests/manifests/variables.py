"""Which variables of the environment the code reads: what its settings modules name."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_FILES = ("shared/service/settings.py", "shared/store/prefix_kv_settings.py")
CONTROLLER_FILES = ("controller/settings.py", "shared/store/prefix_kv_settings.py")
BY_LIBRARIES = frozenset({"OMP_WAIT_POLICY"})
"""Read by the OpenMP runtime below torch."""

_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|PORT|HOSTNAME|KUBECONFIG")


def variables_read(files: Iterable[str]) -> frozenset[str]:
    """Names of variables that stand as strings in these files."""
    constants = (
        node.value
        for file in files
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return frozenset(text for text in constants if _NAME.fullmatch(text))
