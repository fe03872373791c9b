"""What production code must not reach for: the environment outside settings, and anything that unpickles."""

import ast
from collections.abc import Iterator

import pytest

from tests.structure.source_tree import PACKAGES, python_files, syntax_of

ENVIRONMENT = {"os.environ", "os.environb", "os.getenv", "os.getenvb", "os.putenv", "os.unsetenv"}

PICKLING = {
    "cloudpickle",
    "concurrent.futures.ProcessPoolExecutor",
    "copyreg",
    "dill",
    "joblib",
    "marshal",
    "pickle",
    "shelve",
    "torch.load",
    "torch.save",
    "torch.serialization",
}
# Also reached through a context (`get_context("spawn").Queue`), whose type the syntax does not show.
MULTIPROCESSING = ("multiprocessing", "torch.multiprocessing")
PICKLING_CHANNELS = {"JoinableQueue", "Manager", "Pipe", "Pool", "Queue", "SimpleQueue"}


def imported_names(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for: `{"o": "os", "getenv": "os.getenv"}`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.split(".")[0]
                names[alias.asname or full] = full
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def references(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that is imported or reached through an import."""
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            base, _, rest = ast.unparse(node).partition(".")
            if base in names:
                yield node.lineno, f"{names[base]}.{rest}"


def is_within(name: str, roots: set[str]) -> bool:
    """True if the dotted name is one of the roots or lies below one."""
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def environment_reads(tree: ast.Module) -> list[str]:
    """Uses of the process environment."""
    return [f"line {line}: {name}" for line, name in references(tree) if is_within(name, ENVIRONMENT)]


def is_pickling_channel(node: ast.Attribute) -> bool:
    """True for `Queue` and its like on anything but the modules whose queues stay in the process."""
    return node.attr in PICKLING_CHANNELS and ast.unparse(node.value) not in {"asyncio", "queue"}


def pickling(tree: ast.Module) -> Iterator[str]:
    """Uses of what pickles or unpickles."""
    found = list(references(tree))
    yield from (f"line {line}: {name}" for line, name in found if is_within(name, PICKLING))
    if any(is_within(name, set(MULTIPROCESSING)) for _, name in found):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_pickling_channel(node):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        for line, name in found:
            module, _, last = name.rpartition(".")
            if module in MULTIPROCESSING and last in PICKLING_CHANNELS:
                yield f"line {line}: {name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield f"line {node.value.lineno}: allow_pickle={ast.unparse(node.value)}"


def test_environment_is_read_in_settings_only() -> None:
    found = [
        f"{path}: {read}"
        for path in python_files(*PACKAGES)
        if path.name != "settings.py"
        for read in environment_reads(syntax_of(path))
    ]
    assert not found, "\n".join(found)


def test_nothing_is_pickled() -> None:
    found = [f"{path}: {use}" for path in python_files(*PACKAGES) for use in pickling(syntax_of(path))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A']",
        "import os as o\no.getenv('A')",
        "from os import environ",
        "def f():\n    from os import getenv as g",
    ],
)
def test_a_read_of_the_environment_is_seen(source: str) -> None:
    assert environment_reads(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads as read",
        "import torch\ntorch.load('x')",
        "from torch import load",
        "import multiprocessing as mp\nmp.get_context('spawn').Queue()",
        "from multiprocessing import Pipe",
        "import torch.multiprocessing\ntorch.multiprocessing.Pool()",
        "import numpy\nnumpy.load('x', allow_pickle=True)",
    ],
)
def test_pickling_is_seen(source: str) -> None:
    assert list(pickling(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio, multiprocessing\nasyncio.Queue()",
        "from multiprocessing import shared_memory",
        "import numpy\nnumpy.load('x', allow_pickle=False)",
    ],
)
def test_what_does_not_pickle_is_allowed(source: str) -> None:
    assert not list(pickling(ast.parse(source)))
