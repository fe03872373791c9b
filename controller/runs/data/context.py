"""How many tokens a model can attend to, read off its config.json."""

import json
from pathlib import Path
from typing import Any

from controller.runs.data.errors import FileUnreadable

_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def context_tokens(model: Path) -> int | None:
    """Tokens of prompt and completion together, at most; ``None`` where the config does not say.

    Raises ``FileUnreadable`` for a config.json that is not a JSON object.
    """
    file = model / "config.json"
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(file, str(error)) from error
    if not isinstance(config, dict):
        raise _unreadable(file, "it is not an object")
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        for name in _NAMES:
            if isinstance(part.get(name), int):
                return int(part[name])
    return None


def _unreadable(file: Path, why: str) -> FileUnreadable:
    return FileUnreadable(
        field="model.path",
        reason=f"{file} cannot be read: {why}",
        suggestion="save the model again with save_pretrained",
    )
