"""A file, a class or a function that outgrows its budget is split before it is merged."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.source_tree import python_files, syntax_of, text_of

MAX_FILE_LINES = 500
MAX_CLASS_LINES = 300
MAX_FUNCTION_LINES = 80


def oversized(path: Path) -> Iterator[str]:
    """What in the file is over its budget."""
    num_lines = len(text_of(path).splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{path}: {num_lines} lines, at most {MAX_FILE_LINES}"
    for node in ast.walk(syntax_of(path)):
        match node:
            case ast.ClassDef():
                limit = MAX_CLASS_LINES
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                limit = MAX_FUNCTION_LINES
            case _:
                continue
        num_lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if num_lines > limit:
            yield f"{path}:{node.lineno}: {node.name} has {num_lines} lines, at most {limit}"


def test_everything_keeps_its_size_budget() -> None:
    found = [violation for path in python_files() for violation in oversized(path)]
    assert not found, "\n".join(found)
