"""The paths of a run's config, all resolved at once."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from controller.runs.config.critic import CriticConfig
from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.reference import ReferenceConfig
from controller.runs.config.reward import RewardPartConfig
from controller.runs.config.run_config import RunConfig
from controller.runs.data.dataset_id import is_dataset_uri
from controller.runs.data.errors import PathNotFound
from controller.runs.data.hub import is_hub_file, local_file, pinned_files
from controller.runs.data.library import DatasetLibrary
from controller.runs.data.roots import resolve
from controller.runs.data.saved_dataset import check_saved_dataset
from shared.modeling.errors import UnknownModel
from shared.modeling.folder import pinned_hub_id

_ModelT = TypeVar("_ModelT", ReferenceConfig, CriticConfig)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[A-Za-z0-9][\w./-]*)?")


def resolve_paths(
    config: RunConfig, roots: Sequence[Path], *, allow_hub: bool, library: DatasetLibrary | None = None
) -> RunConfig:
    """The config with every path absolute, symlinks followed, and of the right kind; with every hub id and file of a
    hub dataset at its commit, so that a run that goes on later finds the same. Uploaded datasets, of ``library``, stay
    as they are named.

    Asks the hub where one is allowed and named. Raises ``ConfigInvalid`` with all paths that are outside the roots, do
    not exist or are not what their key needs.
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

    def data_files(field: str, paths: Sequence[str]) -> list[str | None]:
        return [file for path in paths for file in data_entry(field, path)]

    def data_entry(field: str, path: str) -> Sequence[str | None]:
        if not is_hub_file(path):
            return (found(field, path, partial(_data_file, library=library)),)
        try:
            return pinned_files(path, field=field, allow_hub=allow_hub)
        except ConfigInvalid as error:
            problems.extend(error.problems)
            return ()

    find_model = partial(_model, allow_hub=allow_hub)

    def reward_part(number: int, part: RewardPartConfig) -> RewardPartConfig:
        field, update = f"reward.parts[{number}]", dict[str, Any]()
        path, _, name = (part.function or "").rpartition(":")
        if path.endswith(".py"):
            update["function"] = f"{found(f'{field}.function', path, _file)}:{name}"
        if part.model is not None:
            update["model"] = {**part.model, "path": found(f"{field}.model.path", part.model["path"], find_model)}
        return part.model_copy(update=update)

    function, parts = config.reward.custom_reward_function, config.reward.parts
    model = found("model.path", config.model.path, find_model)
    reference = found("reference.model.path", config.reference.model.path, find_model)
    critic = found("critic.model.path", config.critic.model.path, find_model)
    train = data_files("data.train_files", config.data.train_files)
    held_out = data_files("data.val_files", config.data.val_files or ())
    reward = found("reward.custom_reward_function.path", function.path, _file)
    scored_by = None if parts is None else tuple(reward_part(number, part) for number, part in enumerate(parts))
    output = found("trainer.default_local_dir", config.trainer.default_local_dir, _output_folder)
    if problems:
        raise ConfigInvalid(problems)
    files = {"train_files": tuple(train), "val_files": tuple(held_out) or None}
    scored = {"custom_reward_function": function.model_copy(update={"path": reward}), "parts": scored_by}
    return config.model_copy(
        update={
            "model": config.model.model_copy(update={"path": model}),
            "reference": _with_model(config.reference, reference),
            "critic": _with_model(config.critic, critic),
            "data": config.data.model_copy(update=files),
            "reward": config.reward.model_copy(update=scored),
            "trainer": config.trainer.model_copy(update={"default_local_dir": output}),
        }
    )


def _with_model(section: _ModelT, path: str | None) -> _ModelT:
    return section.model_copy(update={"model": section.model.model_copy(update={"path": path})})


def stored_file(path: str, library: DatasetLibrary | None, *, field: str) -> Path:
    """Where an entry of a resolved ``data.train_files`` or ``data.val_files`` lies. Raises ``PathNotFound``."""
    if not is_dataset_uri(path):
        return local_file(path, field=field)
    if library is None:
        raise PathNotFound(
            field=field, reason=f"{path!r} is an upload, and none are stored here", suggestion="name a file"
        )
    return library.file(path, field=field)


def _data_file(path: str, roots: Sequence[Path], field: str, *, library: DatasetLibrary | None) -> str:
    if is_dataset_uri(path):
        stored_file(path, library, field=field)
        return path
    place = resolve(path, roots, field=field)
    if not place.is_file():
        check_saved_dataset(place, given=path, field=field)
    return str(place)


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
        if not allow_hub:
            raise PathNotFound(
                field=field,
                reason=f"{error.problems[0].reason}, and the controller's settings allow no hub",
                suggestion="put the model under a root and name its folder, or start the controller with "
                "RLHFLESS_ALLOW_HUB=1",
            ) from error
        return _pinned(path, field)
    if not (place / "config.json").is_file():
        raise PathNotFound(
            field=field,
            reason=f"{path!r} is not a model: it has no config.json",
            suggestion="name a folder with config.json, tokenizer files and safetensors weights",
        )
    return str(place)


def _pinned(hub_id: str, field: str) -> str:
    try:
        return pinned_hub_id(hub_id)
    except UnknownModel as error:
        download = f"hf download {hub_id.partition('@')[0]}"
        raise PathNotFound(
            field=field,
            reason=error.message,
            suggestion=f"correct its name, or fetch it where there is a network: {download}",
        ) from error


def _output_folder(path: str, roots: Sequence[Path], field: str) -> str:
    place = resolve(path, roots, field=field, must_exist=False)
    if place.exists() and not place.is_dir():
        raise PathNotFound(field=field, reason=f"{path!r} is not a folder", suggestion="name a folder, new or existing")
    return str(place)
