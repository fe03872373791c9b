"""Answers of an API, as ``rlhfless top`` gets them."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.cli.top_view import TopData


def function(name: str, **fields: Any) -> dict[str, Any]:
    """A function as ``GET /v1/functions`` has it."""
    revision = f"{name}-00001"
    return {
        "name": name,
        "stages": [name],
        "revision": revision,
        "revisions": [{"name": revision, "percent": 100, "tags": [], "ready": True, "num_replicas": 0}],
        "ready": True,
        "reason": "",
        "num_replicas": 0,
        "num_ready": 0,
        "num_pending": 0,
        "num_in_flight": 0,
        "num_queued": 0,
        "min_scale": 0,
        "max_scale": 8,
        **fields,
    }


def replica(name: str, state: str = "ready", **fields: Any) -> dict[str, Any]:
    """A replica as ``GET /v1/replicas`` has it."""
    return {
        "instance": name,
        "function": name.partition("-")[0],
        "revision": name.rpartition("-")[0],
        "state": state,
        "reason": "",
        "num_in_flight": 0,
        "num_cpus": 0.5,
        "num_gpus": 0,
        "scheduled_at": 900.0,
        "started_at": None if state == "pending" else 910.0,
        "usd": 0.0,
        **fields,
    }


def top_data(
    *,
    functions: Sequence[Mapping[str, Any]] = (),
    replicas: Sequence[Mapping[str, Any]] = (),
    costs: Mapping[str, float] | None = None,
    runs: Sequence[Mapping[str, Any]] = (),
    last_steps: Mapping[str, Mapping[str, Any]] | None = None,
) -> TopData:
    """All answers at one time: 1000, of a controller that started at 925."""
    held = {
        "platform": "local",
        "host": "laptop",
        "since": 925.0,
        "now": 1000.0,
        "cpu_hour_usd": 0.04,
        "gpu_hour_usd": 2.0,
        "replicas": list(replicas),
        "costs": [{"function": name, "usd": usd} for name, usd in (costs or {}).items()],
    }
    return TopData(url="http://127.0.0.1:8765", held=held, functions=functions, runs=runs, last_steps=last_steps or {})
