"""The function under test, as a caller meets it."""

from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx
from pydantic import ValidationError

from controller.conformance.settings import ConformanceSettings
from shared.contracts.call import StageCall
from shared.contracts.errors import Problem

TIMEOUT_S = 600.0
"""For one answer: a first one may wait for a cold start."""
_JSON = {"content-type": "application/json"}


class SubjectUnreachable(Exception):
    """Nothing answers there, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, and what was asked."""

    what: str
    status: int
    body: bytes
    headers: httpx.Headers

    def problem(self) -> Problem | None:
        """The typed problem in it, if it is one."""
        try:
            return Problem.model_validate_json(self.body)
        except ValidationError:
            return None

    def __str__(self) -> str:
        return f"{self.status} {self.body[:120].decode(errors='replace')}".strip()


class Subject:
    """Calls the function, and remembers every answer."""

    def __init__(self, settings: ConformanceSettings, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.stage = settings.stage
        self.answers: list[Answer] = []
        self._token = settings.token
        self._client = httpx.AsyncClient(
            base_url=settings.url,
            headers={"host": settings.host} if settings.host else {},
            timeout=TIMEOUT_S,
            transport=transport,
            follow_redirects=False,
        )

    async def __aenter__(self) -> "Subject":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str, *, token: str | None = "") -> Answer:
        """GET, with the right token unless another, or none, is given."""
        return await self._ask("GET", path, None, token)

    async def post(self, body: bytes, *, path: str | None = None, token: str | None = "") -> Answer:
        """POST to the stage's route, or another."""
        return await self._ask("POST", path or self.stage.route, body, token)

    async def call(self, call: StageCall[Any], *, token: str | None = "") -> Answer:
        """A stage call."""
        return await self.post(call.model_dump_json().encode(), token=token)

    async def _ask(self, method: str, path: str, body: bytes | None, token: str | None) -> Answer:
        headers = {} if token is None else {"authorization": f"Bearer {token or self._token}"}
        try:
            response = await self._client.request(
                method, path, content=body, headers=headers | (_JSON if body is not None else {})
            )
        except httpx.HTTPError as error:
            raise SubjectUnreachable(f"{method} {path}: {type(error).__name__} {error}".strip()) from error
        answer = Answer(
            what=f"{method} {path}", status=response.status_code, body=response.content, headers=response.headers
        )
        self.answers.append(answer)
        return answer
