"""The paths of a run's config, all resolved at once."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from controller.runs.data.errors import PathNotFound
from controller.runs.data.roots import resolve

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve_paths(config: RunConfig, roots: Sequence[Path], *, allow_hub: bool) -> RunConfig:
    """The config with every path absolute, symlinks followed, and of the right kind.

    Raises ``ConfigInvalid`` with all paths that are outside the roots, do not exist or are not what their key needs.
    """
    problems: list[ConfigProblem] = []

    def found(field: str, path: str | None, find: Callable[[str, Sequence[Path], str], str]) -> str | None:
        try:
            return None if path is None else find(path, roots, field)
        except ConfigInvalid as error:
            problems.extend(error.problems)
        except OSError as error:
            reason = f"{path!r} cannot be looked at: {error.strerror}"
            problems.append(ConfigProblem(field=field, reason=reason, suggestion="let the controller read it"))
        return None

    function = config.reward.custom_reward_function
    model = found("model.path", config.model.path, partial(_model, allow_hub=allow_hub))
    train = [found("data.train_files", path, _file) for path in config.data.train_files]
    held_out = [found("data.val_files", path, _file) for path in config.data.val_files or ()]
    reward = found("reward.custom_reward_function.path", function.path, _file)
    output = found("trainer.default_local_dir", config.trainer.default_local_dir, _output_folder)
    if problems:
        raise ConfigInvalid(problems)
    files = {"train_files": tuple(train), "val_files": tuple(held_out) or None}
    scored = {"custom_reward_function": function.model_copy(update={"path": reward})}
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"path": model}),
            "data": config.data.model_copy(update=files),
            "reward": config.reward.model_copy(update=scored),
            "trainer": config.trainer.model_copy(update={"default_local_dir": output}),
        }
    )


def _file(path: str, roots: Sequence[Path], field: str) -> str:
    place = resolve(path, roots, field=field)
    if not place.is_file():
        raise PathNotFound(field=field, reason=f"{path!r} is not a file", suggestion="name the files one by one")
    return str(place)


def _model(path: str, roots: Sequence[Path], field: str, *, allow_hub: bool) -> str:
    """A folder under a root goes before a hub id of the same name."""
    try:
        place = resolve(path, roots, field=field)
    except PathNotFound as error:
        if not _HUB_ID.fullmatch(path):
            raise
        if allow_hub:
            return path
        raise PathNotFound(
            field=field,
            reason=f"{error.problems[0].reason}, and the controller's settings allow no hub",
            suggestion="put the model under a root and name its folder",
        ) from error
    if not (place / "config.json").is_file():
        raise PathNotFound(
            field=field,
            reason=f"{path!r} is not a model: it has no config.json",
            suggestion="name a folder with config.json, tokenizer files and safetensors weights",
        )
    return str(place)


def _output_folder(path: str, roots: Sequence[Path], field: str) -> str:
    place = resolve(path, roots, field=field, must_exist=False)
    if place.exists() and not place.is_dir():
        raise PathNotFound(field=field, reason=f"{path!r} is not a folder", suggestion="name a folder, new or existing")
    return str(place)
