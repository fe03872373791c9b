"""Paths of a config lead under the roots or nowhere."""

from pathlib import Path

import pytest

from controller.runs.data.errors import InputRefused, PathNotFound, PathOutsideRoots
from controller.runs.data.roots import resolve


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    for name in ("data", "models", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"in_{name}").write_text("")
    return [tmp_path / "data", tmp_path / "models"]


def refused(path: str, roots: list[Path], error: type[InputRefused], *, must_exist: bool = True) -> InputRefused:
    with pytest.raises(error) as caught:
        resolve(path, roots, field="data.train_files", must_exist=must_exist)
    (problem,) = caught.value.problems
    assert problem.field == "data.train_files"
    assert problem.suggestion
    return caught.value


def test_a_relative_path_is_found_under_any_root(roots: list[Path]) -> None:
    assert resolve("in_data", roots, field="f") == roots[0] / "in_data"
    assert resolve("in_models", roots, field="f") == roots[1] / "in_models"


def test_an_absolute_path_under_a_root_is_itself(roots: list[Path]) -> None:
    assert resolve(str(roots[1] / "in_models"), roots, field="f") == roots[1] / "in_models"


def test_the_first_root_wins(roots: list[Path]) -> None:
    (roots[1] / "in_data").write_text("")
    assert resolve("in_data", roots, field="f") == roots[0] / "in_data"


def test_dots_within_a_root_are_followed(roots: list[Path]) -> None:
    assert resolve("../data/in_data", roots, field="f") == roots[0] / "in_data"


@pytest.mark.parametrize(
    "path", ["../outside/in_outside", "../outside/nothing", "/etc/passwd", "/nothing/at/all", ".."]
)
def test_outside_is_refused_naming_the_roots_whether_or_not_it_exists(roots: list[Path], path: str) -> None:
    error = refused(path, roots, PathOutsideRoots)
    assert all(str(root) in str(error) for root in roots)


@pytest.mark.parametrize("must_exist", [True, False])
def test_a_symlink_out_of_the_roots_is_refused(roots: list[Path], must_exist: bool) -> None:
    for root in roots:
        (root / "link").symlink_to(root.parent / "outside")
    refused("link/in_outside", roots, PathOutsideRoots, must_exist=must_exist)
    refused(str(roots[0] / "link" / "new"), roots, PathOutsideRoots, must_exist=must_exist)


def test_a_symlink_out_of_one_root_is_not_called_missing(roots: list[Path]) -> None:
    (roots[0] / "link").symlink_to(roots[0].parent / "outside")
    refused("link", roots, PathOutsideRoots)


def test_a_symlink_between_roots_is_followed(roots: list[Path]) -> None:
    (roots[0] / "link").symlink_to(roots[1])
    assert resolve("link/in_models", roots, field="f") == roots[1] / "in_models"


def test_a_root_may_itself_be_a_symlink(tmp_path: Path, roots: list[Path]) -> None:
    (tmp_path / "root").symlink_to(roots[0])
    assert resolve("in_data", [tmp_path / "root"], field="f") == roots[0] / "in_data"
    assert resolve(str(tmp_path / "root" / "in_data"), [tmp_path / "root"], field="f") == roots[0] / "in_data"


def test_a_folder_whose_name_starts_like_a_root_is_outside(tmp_path: Path, roots: list[Path]) -> None:
    (tmp_path / "data-of-others").mkdir()
    refused(str(tmp_path / "data-of-others"), roots, PathOutsideRoots)


@pytest.mark.parametrize("path", ["nothing", "a\0b", "x" * 5000, "in_data/below_a_file"])
def test_what_is_not_there_is_refused(roots: list[Path], path: str) -> None:
    refused(path, roots, PathNotFound)


def test_a_loop_of_symlinks_is_refused(roots: list[Path]) -> None:
    (roots[0] / "a").symlink_to(roots[0] / "b")
    (roots[0] / "b").symlink_to(roots[0] / "a")
    refused("a", roots, PathNotFound)


def test_a_new_path_is_under_the_first_root(roots: list[Path]) -> None:
    assert resolve("runs/1", roots, field="f", must_exist=False) == roots[0] / "runs" / "1"
    assert resolve(str(roots[1] / "runs"), roots, field="f", must_exist=False) == roots[1] / "runs"


def test_without_roots_nothing_is_inside() -> None:
    refused("/", [], PathOutsideRoots)
