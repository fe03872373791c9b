"""Whether a run that goes on still has what it was submitted with."""

from collections.abc import Mapping
from pathlib import Path

from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.fingerprint import run_fingerprint
from controller.runs.prepared import Prepared


def check_unchanged(submitted: Mapping[str, str] | None, prepared: Prepared) -> list[str]:
    """See that every step means what it meant at submission: the same rows, the same model.

    ``submitted`` is the fingerprint that was taken then; ``None`` of an earlier version of the controller, which took
    none. Returns a line for each file of the reward that is another one: a reward that failed is mended and the run
    goes on. Raises ``ConfigInvalid`` naming the files of anything else. Hashes every row: call it off the event loop.
    """
    if submitted is None:
        return []
    now = run_fingerprint(prepared)
    changed = sorted(name for name in submitted.keys() | now.keys() if submitted.get(name) != now.get(name))
    problems = {
        problem.field: problem
        for name in changed
        if not name.startswith("reward.")
        for problem in [_of(name, prepared)]
    }
    if problems:
        raise ConfigInvalid(problems.values())
    return [
        f"{name}: the file changed after the run was submitted; what is scored from now on is scored by the new one"
        for name in changed
    ]


def _of(name: str, prepared: Prepared) -> ConfigProblem:
    data = prepared.config.data
    if name == "data.train_files" or (name == "data.val_files" and data.val_files is None):
        return _problem("data.train_files", "the rows of", data.train_files)
    if name == "data.val_files":
        return _problem(name, "the rows of", data.val_files or ())
    if name in prepared.other_models:
        return _problem(name, "the config of", (str(prepared.other_models[name]),))
    return _problem("model.path", f"the {name} of", (prepared.config.model.path,))


def _problem(field: str, what: str, places: tuple[str, ...]) -> ConfigProblem:
    names = ", ".join(Path(place).name for place in places)
    return ConfigProblem(
        field=field,
        reason=f"{what} {names} changed after the run was submitted",
        suggestion="put back what was there and resume the run, or submit a new one",
    )
