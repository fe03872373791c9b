"""What a trial is given: options, else the environment."""

from pathlib import Path
from typing import Any

import pytest

from controller.conformance.settings import ConformanceInvalid, ConformanceSettings

ASKED: dict[str, Any] = {"url": "http://reward/", "stage": "reward", "environment": {}}


def test_options_come_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-file\n")
    env = {
        "RLHFLESS_TOKEN": "of-the-environment",
        "REDIS_URL": "redis://theirs",
        "REDIS_PASSWORD": "hunter2",
        "RLHFLESS_BLOB_URL": "file:///blobs",
    }
    settings = ConformanceSettings.read(
        **ASKED | {"environment": env}, token_file=tmp_path / "token", redis_url="redis://mine"
    )
    assert (settings.url, settings.token, settings.redis_url) == ("http://reward", "of-the-file", "redis://mine")
    assert (settings.redis_password, settings.blob_url) == ("hunter2", "file:///blobs")
    assert "hunter2" not in repr(settings)
    assert "of-the-file" not in repr(settings)


def test_a_token_may_come_by_the_variable_and_files_by_theirs(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-file")
    env = {"RLHFLESS_TOKEN_FILE": str(tmp_path / "token")}
    assert ConformanceSettings.read(**ASKED | {"environment": env}).token == "of-the-file"
    env["RLHFLESS_TOKEN"] = "of-the-variable"
    assert ConformanceSettings.read(**ASKED | {"environment": env}).token == "of-the-variable"
    assert ConformanceSettings.read(**ASKED | {"environment": env}, token="of-the-option").token == "of-the-option"


def test_a_model_is_here_where_the_function_sees_it_unless_it_is_said() -> None:
    read = ConformanceSettings.read
    both = read(**ASKED, token="t", model="/models/tiny")
    assert (both.model, both.model_here) == ("/models/tiny", Path("/models/tiny"))
    apart = read(**ASKED, token="t", model="/models/tiny", model_here=Path("tiny"))
    assert (apart.model, apart.model_here) == ("/models/tiny", Path("tiny"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"url": "reward:8080"}, "not an address"),
        ({"stage": "trainer"}, "no stage 'trainer'"),
        ({}, "token is missing"),
        ({"token": "two\nlines"}, "token is missing"),
        ({"token_file": Path("/no/such/file")}, "cannot be read"),
    ],
)
def test_what_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ConformanceInvalid, match=why):
        ConformanceSettings.read(**ASKED | change)
