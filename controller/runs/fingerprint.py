"""Digests of what a config only names: two runs with equal ones compute the same, wherever their files lie."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from controller.runs.config.keys import known_keys
from controller.runs.config.reward import RewardConfig
from controller.runs.prepared import Prepared
from shared.contracts.prompt import Prompt

VOLATILE = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})
"""Keys of a model's config.json that change nothing here: what saved it, and in what precision."""


def fingerprint(prepared: Prepared) -> dict[str, str]:
    """SHA-256 by name: ``model`` (its architecture), ``tokenizer``, the architecture of each model that stands for the
    policy's first in the critic or the reference, ``data.train_files`` (the rows as they are used), and each file that
    the reward names.

    Reads the files and hashes every row: call it off the event loop.
    """
    folder = prepared.model_folder
    return {
        "model": architecture(folder),
        "tokenizer": _sha256(_bytes_of(folder / "tokenizer.json") + _canonical(list(prepared.eos_token_ids))),
        **{field: architecture(other) for field, other in prepared.other_models.items()},
        "data.train_files": _rows(prepared.train.prompts),
        **{f"reward.{name}": _sha256(file.read_bytes()) for name, file in _files(prepared.config.reward)},
    }


def run_fingerprint(prepared: Prepared) -> dict[str, str]:
    """``fingerprint`` and the held-out rows, which a run that goes on has to have and a new one need not."""
    heldout = {"data.val_files": _rows(prepared.heldout)} if prepared.heldout else {}
    return fingerprint(prepared) | heldout


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """The values of a config by dotted key. Keys that it does not have are left out."""
    values: dict[str, Any] = {}
    for name in known_keys():
        node: Any = config
        for part in name.split("."):
            if not isinstance(node, dict) or part not in node:
                break
            node = node[part]
        else:
            values[name] = node
    return values


def architecture(folder: Path) -> str:
    """SHA-256 of what a model's folder says of its shape."""
    model = json.loads((folder / "config.json").read_text())
    return _sha256(_canonical({name: value for name, value in model.items() if name not in VOLATILE}))


def _rows(prompts: Sequence[Prompt]) -> str:
    rows = hashlib.sha256()
    for prompt in prompts:
        rows.update(prompt.model_dump_json().encode())
    return rows.hexdigest()


def _files(reward: RewardConfig) -> Iterator[tuple[str, Path]]:
    """The files of user functions by dotted key, and no other: only these were resolved under the roots."""
    named = [("custom_reward_function.path", reward.custom_reward_function.path)]
    for number, part in enumerate(reward.parts or ()):
        file, _, _ = (part.function or "").rpartition(":")
        named.append((f"parts.{number}.function", file if file.endswith(".py") else None))
    for name, path in named:
        if path is not None and Path(path).is_file():
            yield name, Path(path)


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
