"""Who may call: every route but health needs the shared token."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from shared.contracts.errors import Unauthenticated
from shared.service.errors import problem_response

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class TokenAuth:
    """ASGI middleware that refuses requests without the right bearer token, before their body is read."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "lifespan" or scope["path"] in OPEN_PATHS or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        error = Unauthenticated("send the shared token as 'Authorization: Bearer ...'")
        await problem_response(error)(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)
