"""Who may call: every route but the open ones needs the bearer token."""

import hmac
from collections.abc import Callable, Collection

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.contracts.errors import Unauthenticated
from shared.service.errors import problem_response

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})


def refuse() -> Response:
    """A function's answer to a caller without the token."""
    return problem_response(Unauthenticated("send the shared token as 'Authorization: Bearer ...'"))


class TokenAuth:
    """ASGI middleware that refuses requests without the right bearer token, before their body is read."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        open_paths: Collection[str] = HEALTH_PATHS,
        refusal: Callable[[], Response] = refuse,
    ) -> None:
        """Without a ``token`` every request passes."""
        self._app = app
        self._token = None if token is None else token.encode()
        self._open_paths = open_paths
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "lifespan" or scope["path"] in self._open_paths or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await self._refusal()(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        # Compared in constant time, so that answers do not tell how much of a guess is right.
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
