"""Who may call: every route but health and documentation needs the token, if there is one."""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from controller.api.errors import Unauthenticated, problem_response

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/docs/oauth2-redirect", "/openapi.json"})


class TokenAuth:
    """ASGI middleware that answers 401 before anything else of the request is looked at."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS and not self._allowed(scope):
            refusal = problem_response(Unauthenticated("send the token as 'Authorization: Bearer ...'"))
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, scope: Scope) -> bool:
        if self._expected is None:
            return True
        scheme, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        # Compared in constant time, so that answers do not tell how much of a guess is right.
        return hmac.compare_digest(token.strip(), self._expected) and scheme.lower() == b"bearer"
