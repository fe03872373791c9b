"""Which controller the command speaks to, from its options, the environment and what ``up`` left behind."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from controller.settings import ControllerSettings, SettingsInvalid


class ConnectionInvalid(Exception):
    """What was said about the controller's address or token cannot be used."""


class NoController(Exception):
    """Nothing says where a controller is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A controller's address, and the token that it wants. The token is kept out of ``repr``."""

    url: str
    token: str | None = field(repr=False)


def find_controller(*, url: str | None, token: str | None, environment: Mapping[str, str] | None = None) -> Connection:
    """The controller that is meant: an option, else the environment, else the one that ``rlhfless up`` started here.

    ``RLHFLESS_URL`` and ``RLHFLESS_TOKEN`` or ``RLHFLESS_TOKEN_FILE`` are the variables. Raises ``ConnectionInvalid``
    or ``NoController``.
    """
    env = os.environ if environment is None else environment
    given_token = token or env.get("RLHFLESS_TOKEN") or None
    token_file = env.get("RLHFLESS_TOKEN_FILE") or None
    given_url = url or env.get("RLHFLESS_URL") or None
    if given_url is None:
        # A token that was left behind is for the controller that left it, and is never sent elsewhere.
        given_url, left_file = _left_behind(env)
        token_file = token_file or left_file
    if not given_url.startswith(("http://", "https://")):
        raise ConnectionInvalid(f"{given_url!r} is not an address: write it as http://127.0.0.1:8765")
    if given_token is None and token_file is not None:
        given_token = _read_token(Path(token_file))
    if given_token is not None and not (given_token.isascii() and given_token.isprintable()):
        raise ConnectionInvalid("the token has characters that no token has: check RLHFLESS_TOKEN or --token")
    return Connection(url=given_url.rstrip("/"), token=given_token)


def _left_behind(env: Mapping[str, str]) -> tuple[str, str | None]:
    try:
        address_file = ControllerSettings.from_environment(env).address_file
    except SettingsInvalid as error:
        raise ConnectionInvalid(str(error)) from error
    try:
        content = json.loads(address_file.read_text())
        return content["url"], content.get("token_file")
    except FileNotFoundError as error:
        raise NoController(
            "no controller is running here: start one with 'rlhfless up', or name one with --url or RLHFLESS_URL"
        ) from error
    except OSError as error:
        raise NoController(f"{address_file} cannot be read ({error.strerror}): name a controller with --url") from error
    except (ValueError, KeyError, TypeError) as error:
        raise NoController(f"{address_file} names no controller: start one with 'rlhfless up'") from error


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConnectionInvalid(f"the token file {file} cannot be read: {reason}") from error
