"""Where the paths of a run's config may lead: under the configured roots, nowhere else."""

from collections.abc import Sequence
from pathlib import Path

from controller.runs.data.errors import PathNotFound, PathOutsideRoots


def resolve(path: str, roots: Sequence[Path], *, field: str, must_exist: bool = True) -> Path:
    """The absolute path, with symlinks followed, that ``path`` means under the roots.

    A relative path is looked for under each root in order; without ``must_exist`` it is taken under the first root if
    it is under none yet. ``field`` names the config key in errors: ``PathOutsideRoots`` for a path that leads out of
    the roots, by itself, by ``..`` or by a symlink; ``PathNotFound`` for one that leads nowhere.
    """
    resolved_roots = [root.resolve() for root in roots]
    try:
        candidates = [(root / path).resolve() for root in resolved_roots]
        inside = [place for place in candidates if any(place.is_relative_to(root) for root in resolved_roots)]
        found = next((place for place in inside if place.exists()), None)
    except (OSError, RuntimeError, ValueError) as error:  # name too long, symlink loop, null byte
        raise PathNotFound(
            field=field,
            reason=f"{path!r} is not a usable path: {error}",
            suggestion="give an existing path",
        ) from error
    if found is not None:
        return found
    if not inside or (must_exist and len(inside) < len(candidates)):
        listed = ", ".join(str(root) for root in roots) or "(none is configured)"
        raise PathOutsideRoots(
            field=field,
            reason=f"{path!r} lies outside the roots {listed}",
            suggestion="put it under one of them, or add its folder to the controller's roots",
        )
    if must_exist:
        raise PathNotFound(
            field=field,
            reason=f"{path!r} does not exist under {', '.join(str(root) for root in roots)}",
            suggestion="correct the path; relative paths start at a root",
        )
    return inside[0]
