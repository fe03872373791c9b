"""Where a model's files lie: a local folder, or one fetched from the Hugging Face hub."""

import re
from collections.abc import Sequence
from pathlib import Path

from shared.modeling.errors import UnknownModel

CONFIG_FILES = ("*.json",)
WEIGHT_FILES = ("*.safetensors",)
TOKENIZER_FILES = ("*.json", "*.jinja")

_HUB_ID = re.compile(r"(?P<repository>[\w.-]+(/[\w.-]+)?)(@(?P<revision>[\w./-]+))?")


def model_folder(path_or_hub_id: str | Path, patterns: Sequence[str]) -> Path:
    """The folder that holds the model's files matching `patterns`.

    A hub id (`org/name`, or `org/name@revision`) is fetched into the hub's cache; `HF_HUB_OFFLINE=1` restricts it to
    what is there. Raises UnknownModel when there is neither such a folder nor such a model.
    """
    folder = Path(path_or_hub_id)
    if folder.is_dir():
        return folder
    hub_id = str(path_or_hub_id)
    named = _HUB_ID.fullmatch(hub_id)
    if named is None or hub_id.startswith("."):
        raise UnknownModel(f"There is no model folder {hub_id!r}. Name an existing folder or a hub id.")
    # Only for hub ids: importing it takes longer than all else that a stage without torch imports.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(named["repository"], revision=named["revision"], allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:
        raise UnknownModel(
            f"{hub_id!r} is neither a folder here nor a model that could be fetched from the hub: {error}"
        ) from error


def pinned_hub_id(hub_id: str) -> str:
    """The hub id at the commit that its revision, or the default branch, stands for now: `org/name@commit`.

    Wherever and whenever a pinned id is resolved, it gives the same files. Raises UnknownModel.
    """
    commit = model_folder(hub_id, CONFIG_FILES).name
    return f"{hub_id.partition('@')[0]}@{commit}"
