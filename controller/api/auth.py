"""Who may call the API: everybody with the API's token; functions are changed by admins only."""

import hmac
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.api.errors import NotAllowed, Unauthenticated, problem_response
from controller.settings import ControllerSettings, SettingsInvalid, read_token_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What callers must present. Without a ``user`` token everybody may do everything (an API on loopback)."""

    user: str | None = field(default=None, repr=False)
    admin: str | None = field(default=None, repr=False)
    """Opens all that ``user`` opens, and the changing of functions. None: nobody may change them."""


def api_tokens(settings: ControllerSettings) -> Tokens:
    """The API's tokens from their files. Raises ``SettingsInvalid``."""
    named = (
        (settings.api_token_file, "RLHFLESS_API_TOKEN_FILE"),
        (settings.admin_token_file, "RLHFLESS_ADMIN_TOKEN_FILE"),
    )
    user, admin = (None if path is None else read_token_file(path, variable) for path, variable in named)
    if admin is not None and admin == user:
        raise SettingsInvalid("RLHFLESS_ADMIN_TOKEN_FILE has the API's own token: make another one for admins")
    return Tokens(user=user, admin=admin)


class ApiAuth:
    """ASGI middleware: refuses requests without a right bearer token before their body is read, and notes admins."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, open_paths: Collection[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_admin, is_user = self._scopes(scope)
        if is_admin or is_user or scope["path"] in self._open_paths:
            scope.setdefault("state", {})["is_admin"] = is_admin
            await self._app(scope, receive, send)
            return
        refusal = problem_response(Unauthenticated("send the token as 'Authorization: Bearer ...'"))
        await refusal(scope, receive, send)

    def _scopes(self, scope: Scope) -> tuple[bool, bool]:
        """Whether the caller is an admin, and whether one of the API's users."""
        if self._tokens.user is None:
            return True, True
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        # Both are compared, each in constant time, so that answers do not tell how much of a guess is right.
        return _equal(given, self._tokens.admin), _equal(given, self._tokens.user)


def _equal(given: bytes, token: str | None) -> bool:
    return hmac.compare_digest(given, token.encode()) if token else False


async def _require_admin(request: Request) -> None:
    if not request.state.is_admin:
        raise NotAllowed(
            "functions are changed with the admin token (RLHFLESS_ADMIN_TOKEN_FILE of the controller) only"
        )


AdminOnly = Annotated[None, Depends(_require_admin)]
"""A route's parameter: 403 unless the caller is an admin."""
