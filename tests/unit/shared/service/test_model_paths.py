"""Which models a call may name."""

from dataclasses import replace
from pathlib import Path

import pytest

from shared.contracts.errors import InvalidInput
from shared.contracts.policy import ModelRef
from shared.service.model_paths import checked_model
from shared.service.settings import FunctionSettings


@pytest.fixture
def settings(tmp_path: Path) -> FunctionSettings:
    token = tmp_path / "token"
    token.write_text("a-token-of-enough-characters")
    for folder in ("models/tiny", "outside/tiny"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    (tmp_path / "models/empty").mkdir()
    (tmp_path / "models/link").symlink_to(tmp_path / "models/tiny")
    (tmp_path / "models/escape").symlink_to(tmp_path / "outside/tiny")
    (tmp_path / "models/circle").symlink_to(tmp_path / "models/circle")
    return FunctionSettings.from_environment(
        {
            "RLHFLESS_STAGES": "reward",
            "RLHFLESS_TOKEN_FILE": str(token),
            "RLHFLESS_ROOTS": f"/nowhere:{tmp_path / 'models'}",
        }
    )


@pytest.mark.parametrize("name", ["tiny", "link", "../models/tiny", "empty/../tiny"])
def test_a_folder_under_a_root_is_named_with_links_resolved(
    settings: FunctionSettings, tmp_path: Path, name: str
) -> None:
    path = f"{tmp_path}/models/{name}"
    assert checked_model(ModelRef(path=path), settings) == str(tmp_path / "models/tiny")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside/tiny", "outside the configured roots"),
        ("escape", "outside the configured roots"),
        ("../models-too/tiny", "outside the configured roots"),
        ("empty", "no config.json"),
        ("missing", "no config.json"),
        ("tiny/config.json", "no config.json"),
        ("circle", "no path that can be followed"),
        ("n\0l", "no path that can be followed"),
        ("x" * 300, "no path that can be followed"),
    ],
)
def test_anything_else_is_refused(settings: FunctionSettings, tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        checked_model(ModelRef(path=f"{tmp_path}/models/{name}"), settings)


@pytest.mark.parametrize("allow_hub", [False, True])
def test_hub_ids_only_where_a_hub_is_allowed(settings: FunctionSettings, allow_hub: bool) -> None:
    settings = replace(settings, allow_hub=allow_hub)
    if allow_hub:
        assert checked_model(ModelRef(path="org/name"), settings) == "org/name"
    else:
        with pytest.raises(InvalidInput, match="RLHFLESS_ALLOW_HUB"):
            checked_model(ModelRef(path="org/name"), settings)


@pytest.mark.parametrize("path", ["outside/tiny", "../outside/tiny", "."])
def test_a_folder_beside_the_process_is_no_hub_id(
    settings: FunctionSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path / "models" if path.startswith("..") else tmp_path)
    with pytest.raises(InvalidInput):
        checked_model(ModelRef(path=path), replace(settings, allow_hub=True))
