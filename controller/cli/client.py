"""A client of the REST API. Every failure is one of two: the controller cannot be reached, or it refuses."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from controller.cli.settings import Connection
from controller.cli.sse import ServerEvent, server_events
from controller.runs.state import RunState

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
"""A config is checked before it is answered, which reads every row of its data."""
UPLOAD_TIMEOUT_S = 600.0
"""Every row of an upload is read before it is answered."""
SILENCE_S = 30.0
"""A followed stream gives a sign of life every few seconds; after this long without one it is lost."""
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Unreachable(Exception):
    """The controller gives no answer."""


class Refused(Exception):
    """The controller answers with a problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(problem.get("message") or f"the controller answered with status {status}")
        self.status = status
        self.code = problem.get("code", "")
        self.retryable = bool(problem.get("retryable"))
        self.problems: Sequence[Mapping[str, str]] = problem.get("problems") or ()


class ControllerClient:
    """Calls one controller. To be used as an async context manager."""

    def __init__(self, connection: Connection, *, patience_s: float = 60.0) -> None:
        """``patience_s``: how long a controller that was followed and is gone is waited for."""
        self.url = connection.url
        self._patience_s = patience_s
        self._http = httpx.AsyncClient(
            base_url=connection.url,
            headers={} if connection.token is None else {"Authorization": f"Bearer {connection.token}"},
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            # A proxy of the environment does not lead to this machine.
            trust_env=not self.is_local,
        )

    @property
    def is_local(self) -> bool:
        """Whether the address leads to this machine; what listens there may still pass calls on."""
        return httpx.URL(self.url).host in LOOPBACK

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    async def submit(
        self, document: Mapping[str, Any], overrides: Sequence[str], *, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Start a run; returns it."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return await self._post_config("/v1/runs", document, overrides, headers)

    async def dry_run(self, document: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """What the run would be."""
        return await self._post_config("/v1/runs?dry_run=true", document, overrides, {})

    async def runs(self, *, states: Sequence[str] = (), limit: int = 100) -> list[dict[str, Any]]:
        """Runs, the newest first."""
        answer = await self._json("GET", "/v1/runs", params={"state": list(states), "limit": limit})
        return list(answer["runs"])

    async def run(self, run: str) -> dict[str, Any]:
        """One run."""
        return await self._json("GET", _path(run))

    async def summary(self, run: str) -> dict[str, Any]:
        """What the run has come to."""
        return await self._json("GET", _path(run, "summary"))

    async def checkpoints(self, run: str) -> list[dict[str, Any]]:
        """The run's checkpoints, the oldest first."""
        return list((await self._json("GET", _path(run, "checkpoints")))["checkpoints"])

    async def checkpoint_model(self, run: str, step: int) -> AsyncIterator[bytes]:
        """The model of a checkpoint: a tar archive of its folder, in pieces."""
        path = _path(run, "checkpoints", str(step), "download")
        async with self._stream(path, params={"part": "model"}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def has_dataset(self, dataset: str) -> bool:
        """Whether the controller has the uploaded dataset."""
        try:
            await self._request("GET", f"/v1/datasets/{quote(dataset, safe='')}")
        except Refused as error:
            if error.code != "dataset_unknown":
                raise
            return False
        return True

    async def upload_dataset(self, name: str, chunks: AsyncIterator[bytes], *, num_bytes: int) -> dict[str, Any]:
        """Send a file of rows; returns the dataset that it is."""
        return await self._json(
            "POST",
            "/v1/datasets",
            params={"name": name},
            content=chunks,
            headers={"Content-Type": "application/octet-stream", "Content-Length": str(num_bytes)},
            timeout=httpx.Timeout(UPLOAD_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    async def cancel(self, run: str) -> dict[str, Any]:
        """End the run; returns it."""
        return await self._json("POST", _path(run, "cancel"))

    async def resume(self, run: str) -> dict[str, Any]:
        """Queue the run again; returns it."""
        return await self._json("POST", _path(run, "resume"))

    async def delete(self, run: str) -> None:
        """Delete the run."""
        await self._request("DELETE", _path(run))

    async def functions(self) -> list[dict[str, Any]]:
        """The functions of the platform."""
        return list((await self._json("GET", "/v1/functions"))["functions"])

    async def function(self, name: str) -> dict[str, Any]:
        """One function and its last change."""
        return await self._json("GET", f"/v1/functions/{quote(name, safe='')}")

    async def change_function(self, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for another image, other variables or resources; returns the function. Needs the admin token."""
        return await self._json("PUT", f"/v1/functions/{quote(name, safe='')}", json=dict(wanted))

    async def replicas(self) -> dict[str, Any]:
        """The replicas that live, and what each function has cost."""
        return await self._json("GET", "/v1/replicas")

    async def history(self, run: str, *, after_step: int | None = None) -> list[dict[str, Any]]:
        """What the run measured, of the steps after one."""
        params = {} if after_step is None else {"after_step": after_step}
        return list((await self._json("GET", _path(run, "metrics"), params=params))["history"])

    async def plan(self, run: str, *, step: int | None = None) -> dict[str, Any]:
        """The plans of a step of the run, the latest by default."""
        return await self._json("GET", _path(run, "plan") if step is None else _path(run, "steps", str(step), "plan"))

    async def expect(self, document: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
        """What a step of such a run is expected to take."""
        return await self._post_config("/v1/plans", document, overrides, {})

    async def trace(self, run: str, *, from_step: int = 0) -> AsyncIterator[bytes]:
        """The run's trace as JSON lines, in pieces."""
        async with self._stream(_path(run, "trace"), params={"from_step": from_step}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def logs(self, run: str, *, follow: bool) -> AsyncIterator[str]:
        """The lines of the run's log."""
        async with self._stream(_path(run, "logs"), params={"follow": follow}) as response:
            async for line in response.aiter_lines():
                yield line

    async def events(self, run: str, *, after: str = "0") -> AsyncIterator[ServerEvent]:
        """What happens in the run until it has ended, across lost connections and restarts of the controller.

        Raises ``Unreachable`` when the controller is not there at first, or stays away for longer than the patience.
        """
        clock = asyncio.get_running_loop().time
        heard_at: float | None = None
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with self._stream(_path(run, "events"), params={"after": after}) as response:
                    async for event in server_events(response.aiter_lines()):
                        heard_at, pause_s = clock(), FIRST_PAUSE_S
                        if event is not None:
                            yield event
                            after = event.id
                if RunState((await self.run(run))["state"]).is_terminal:
                    return
            except (Unreachable, Refused) as error:
                passing = isinstance(error, Unreachable) or error.retryable
                if not passing or heard_at is None or clock() - heard_at > self._patience_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _post_config(
        self, path: str, document: Mapping[str, Any], overrides: Sequence[str], headers: Mapping[str, str]
    ) -> dict[str, Any]:
        # Not by httpx, which refuses NaN without a word about where it stands.
        body = json.dumps({"config": document, "overrides": list(overrides)})
        return await self._json("POST", path, content=body, headers={"Content-Type": "application/json", **headers})

    async def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = await self._request(method, path, **options)
        try:
            answer: dict[str, Any] = response.json()
        except ValueError as error:
            raise Unreachable(f"{self.url} is no controller of rlhfless: its answer is not JSON") from error
        return answer

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._http.request(method, path, **options)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        _accept(response)
        return response

    @asynccontextmanager
    async def _stream(self, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_TIMEOUT_S)
        try:
            async with self._http.stream("GET", path, timeout=timeout, **options) as response:
                if response.is_error:
                    await response.aread()
                _accept(response)
                yield response
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(f"no answer from the controller at {self.url} ({reason}): check that it runs")


def _path(run: str, *parts: str) -> str:
    return "/".join(("/v1/runs", quote(run, safe=""), *parts))


def _accept(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise Refused(response.status_code, problem if isinstance(problem, dict) else {})
