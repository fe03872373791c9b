"""The context length is read off config.json."""

import json
from pathlib import Path

import pytest

from controller.runs.data.context import context_tokens
from controller.runs.data.errors import FileUnreadable


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 512}, 512),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 64}}, 64),
        ({"max_position_embeddings": 32, "text_config": {"max_position_embeddings": 64}}, 32),
        ({"model_type": "mamba"}, None),
        ({"text_config": None}, None),
    ],
)
def test_context(tmp_path: Path, config: dict[str, object], tokens: int | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert context_tokens(tmp_path) == tokens


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_an_unreadable_config_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(FileUnreadable) as caught:
        context_tokens(tmp_path)
    assert caught.value.problems[0].field == "model.path"
