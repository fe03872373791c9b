"""The REST API as the tests call it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from tests.e2e.waiting import PATIENCE_S, wait_until

ENDED = ("succeeded", "failed", "cancelled")
Json = dict[str, Any]


class Api:
    """Calls one controller."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=30.0)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request."""
        return self._http.request(method, path, **options)

    def start(self, config: Mapping[str, Any], *, key: str | None = None) -> str:
        """Start a run; returns its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = self._http.post("/v1/runs", json=config, headers=headers)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def get(self, path: str) -> Json:
        """What is at the path."""
        answer = self._http.get(path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def run(self, run: str) -> Json:
        """The run's record."""
        return self.get(f"/v1/runs/{run}")

    def runs(self) -> list[Json]:
        """All runs."""
        return list(self.get("/v1/runs")["runs"])

    def wait(self, run: str, *states: str, timeout_s: float = PATIENCE_S) -> Json:
        """The run's record once it is in one of the states; by default, once it has ended."""
        seen: Json = {}

        def reached() -> bool:
            seen.update(self.run(run))
            assert seen["state"] in states or seen["state"] not in ENDED, f"{seen['state']}: {seen['info']}"
            return seen["state"] in states

        states = states or ENDED
        wait_until(reached, timeout_s=timeout_s, what=f"{run} to be {' or '.join(states)}")
        return seen

    def succeed(self, config: Mapping[str, Any]) -> str:
        """Start a run and wait until it has succeeded; returns its id."""
        run = self.start(config)
        self.wait(run, "succeeded")
        return run

    def fail(self, config: Mapping[str, Any]) -> tuple[str, str]:
        """Start a run and wait until it has failed; returns its id and the reason."""
        run = self.start(config)
        return run, str(self.wait(run, "failed")["info"]["error"])

    def history(self, run: str, kind: str = "") -> list[Json]:
        """The lines of the run's history, or those of one kind."""
        return [line for line in self.get(f"/v1/runs/{run}/metrics")["history"] if kind in ("", line["kind"])]

    def steps(self, run: str) -> list[int]:
        """The steps in the run's history."""
        return [line["step"] for line in self.history(run, "step")]

    def logs(self, run: str) -> str:
        """The run's log."""
        return self._http.get(f"/v1/runs/{run}/logs").text

    def functions(self) -> dict[str, Json]:
        """The functions by name."""
        return {function["name"]: function for function in self.get("/v1/functions")["functions"]}

    def num_working(self, function: str) -> int:
        """Calls that replicas of the function work on."""
        return int(self.functions()[function]["num_in_flight"])

    def events(self, run: str, *, after: str | None = None, limit: int | None = None) -> list[Json]:
        """Events of the run's stream, up to its end or to a number of them: ``id``, ``kind``, ``data``."""
        headers = {} if after is None else {"Last-Event-ID": after}
        events: list[Json] = []
        with self._http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as answer:
            for event in _server_sent(answer.iter_lines()):
                events.append(event)
                if len(events) == limit:
                    break
        return events


def _server_sent(lines: Iterator[str]) -> Iterator[Json]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield {"id": fields["id"], "kind": fields["event"], "data": json.loads(fields["data"])}
            fields = {}
        else:
            fields = {}
