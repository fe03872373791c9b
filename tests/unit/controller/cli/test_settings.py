import json
from pathlib import Path

import pytest

from controller.cli.settings import Connection, ConnectionInvalid, NoController, find_controller

URL = "http://controller:8765"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine where ``up`` left an address and a token file."""
    (tmp_path / "token").write_text("left-behind\n")
    address = {"url": "http://127.0.0.1:9999", "token_file": str(tmp_path / "token")}
    (tmp_path / "controller.json").write_text(json.dumps(address))
    return {"RLHFLESS_STATE_DIR": str(tmp_path)}


def test_the_controller_that_was_started_here_is_found(environment: dict[str, str]) -> None:
    found = find_controller(url=None, token=None, environment=environment)
    assert found == Connection(url="http://127.0.0.1:9999", token="left-behind")


def test_a_controller_without_a_token_is_found(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "controller.json").write_text('{"url": "http://127.0.0.1:1", "token_file": null}')
    assert find_controller(url=None, token=None, environment=environment).token is None


def test_the_token_that_was_left_behind_is_not_sent_elsewhere(environment: dict[str, str]) -> None:
    assert find_controller(url=URL, token=None, environment=environment).token is None
    environment["RLHFLESS_URL"] = URL
    assert find_controller(url=None, token=None, environment=environment) == Connection(url=URL, token=None)


def test_options_go_before_variables(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("from-file")
    environment |= {"RLHFLESS_URL": "https://b/", "RLHFLESS_TOKEN_FILE": str(tmp_path / "mine")}

    def found(url: str | None, token: str | None) -> tuple[str, str | None]:
        connection = find_controller(url=url, token=token, environment=environment)
        return connection.url, connection.token

    assert found(None, None) == ("https://b", "from-file")
    environment["RLHFLESS_TOKEN"] = "from-variable"
    assert found(None, None) == ("https://b", "from-variable")
    assert found(URL, "from-option") == (URL, "from-option")


def test_without_a_controller_it_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(NoController, match="rlhfless up"):
        find_controller(url=None, token=None, environment={"RLHFLESS_STATE_DIR": str(tmp_path)})


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", "{"])
def test_a_broken_address_file_names_no_controller(tmp_path: Path, content: str) -> None:
    (tmp_path / "controller.json").write_text(content)
    with pytest.raises(NoController, match=r"controller\.json"):
        find_controller(url=None, token=None, environment={"RLHFLESS_STATE_DIR": str(tmp_path)})


def test_a_setting_that_is_wrong_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(ConnectionInvalid, match="RLHFLESS_API_PORT"):
        find_controller(url=None, token=None, environment=environment | {"RLHFLESS_API_PORT": "http"})


@pytest.mark.parametrize("url", ["controller:8765", "ftp://a", "127.0.0.1", "file:///etc"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConnectionInvalid, match="is not an address"):
        find_controller(url=url, token=None, environment={})


@pytest.mark.parametrize("token", ["two\nlines", "snow☃"])
def test_what_cannot_be_a_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ConnectionInvalid) as raised:
        find_controller(url=URL, token=token, environment={})
    assert token not in str(raised.value)


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConnectionInvalid, match="nothing-here"):
        find_controller(url=URL, token=None, environment={"RLHFLESS_TOKEN_FILE": str(tmp_path / "nothing-here")})


def test_the_token_is_not_printed() -> None:
    assert "hunter2" not in repr(Connection(url=URL, token="hunter2"))
