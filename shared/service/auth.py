"""Who may call: every route but health needs the shared token."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from shared.contracts.errors import Unauthenticated
from shared.service.errors import problem_response

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class TokenAuth:
    """ASGI middleware that refuses calls without the right bearer token, before their body is read."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._allowed(scope):
            error = Unauthenticated("send the shared token as 'Authorization: Bearer ...'")
            await problem_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return hmac.compare_digest(given, self._expected)
