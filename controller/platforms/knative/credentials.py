"""Who the controller is to the Kubernetes API."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class CredentialsUnreadable(Exception):
    """The file with the token cannot be read."""


class Credentials(Protocol):
    """What is sent along with every request."""

    def headers(self) -> Mapping[str, str]:
        """Headers of the next request. Raises ``CredentialsUnreadable``."""
        ...


@dataclass(frozen=True, slots=True)
class NoToken:
    """The TLS client certificate says who asks, or nothing does."""

    def headers(self) -> Mapping[str, str]:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token that does not change."""

    token: str = field(repr=False)

    def headers(self) -> Mapping[str, str]:
        """The token as a bearer."""
        return {"authorization": f"Bearer {self.token}"}


class TokenFile:
    """A token in a file that the kubelet replaces before it expires (after an hour, usually)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._version: tuple[int, int, int] | None = None

    def headers(self) -> Mapping[str, str]:
        """The token as a bearer, read again where the file has changed."""
        try:
            found = self._path.stat()
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            if version != self._version:
                self._token = self._path.read_text(encoding="ascii").strip()
                self._version = version
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
            raise CredentialsUnreadable(f"the token file {self._path} cannot be read: {why}") from None
        return {"authorization": f"Bearer {self._token}"}
