"""Names tell what is inside: no drawer modules, and every package says in one sentence what it is for."""

import ast
import re
from pathlib import Path

from tests.structure.source_tree import PACKAGES, python_files, syntax_of

DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc"}
SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


def package_folders() -> list[Path]:
    """Folders of the import packages that hold at least one module, with their parents."""
    folders = {folder for path in python_files(*PACKAGES) for folder in path.parents}
    return sorted(folders - {Path(".")})


def docstring_problem(folder: Path) -> str | None:
    """What is wrong with the docstring of a package, if anything."""
    init = folder / "__init__.py"
    if init not in python_files():
        return f"{folder} has modules but no __init__.py"
    summary = (ast.get_docstring(syntax_of(init)) or "").partition("\n\n")[0]
    if not summary.endswith(".") or len(SENTENCE_END.findall(summary)) != 1:
        return f"{init}: the docstring begins with one full sentence, this is {summary!r}"
    return None


def test_no_module_or_folder_is_a_drawer() -> None:
    found = [str(path) for path in python_files() if not DRAWERS.isdisjoint({*path.parent.parts, path.stem.strip("_")})]
    assert not found, "\n".join(found)


def test_packages_say_in_one_sentence_what_they_are_for() -> None:
    found = [problem for folder in package_folders() if (problem := docstring_problem(folder))]
    assert not found, "\n".join(found)
