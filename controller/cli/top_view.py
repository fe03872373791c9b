"""What ``rlhfless top`` shows: rows made of the API's answers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.cli.text import duration, money, number

STATES = ("ready", "starting", "pending", "draining")
"""The order in which a function's replicas are shown."""
REWARD = "critic/score/mean"
UNLIMITED = "∞"
NOTHING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopData:
    """The API's answers at one time."""

    url: str
    held: Mapping[str, Any]
    """``GET /v1/replicas``."""
    functions: Sequence[Mapping[str, Any]]
    runs: Sequence[Mapping[str, Any]]
    """Runs that have not ended."""
    last_steps: Mapping[str, Mapping[str, Any]]
    """By run, the history line of its last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run that has not ended."""

    run: str
    state: str
    step: str
    reward: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """One function."""

    function: str
    ready: int
    pending: int
    total: int
    in_flight: int
    queued: int
    scale: str
    """Minimum and maximum."""
    cost: str
    revision: str
    """The newest one, or all that get requests with their shares."""
    state: str
    """Why it is not ready; empty while it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """One replica that lives."""

    replica: str
    state: str
    """With its reason."""
    age: str
    """Since it got its place, or since it waits for one."""
    in_flight: int
    cost: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """Everything on the screen, as text."""

    where: str
    held: str
    runs: tuple[RunRow, ...]
    functions: tuple[FunctionRow, ...]
    replicas: tuple[ReplicaRow, ...]


def top_view(data: TopData) -> TopView:
    """The rows, in the order in which they are shown."""
    held = data.held
    usd = {cost["function"]: cost["usd"] for cost in held["costs"]}
    functions = sorted(data.functions, key=lambda function: (-function["num_replicas"], function["name"]))
    replicas = sorted(
        held["replicas"],
        key=lambda replica: (replica["function"], STATES.index(replica["state"]), replica["scheduled_at"]),
    )
    return TopView(
        where=f"{held['platform']} on {held['host']} ({data.url}), up {duration(held['now'] - held['since'])}",
        held=_held(held),
        runs=tuple(_run_row(run, data.last_steps.get(run["id"])) for run in data.runs),
        functions=tuple(_function_row(function, usd.get(function["name"], 0.0)) for function in functions),
        replicas=tuple(_replica_row(replica, held["now"]) for replica in replicas),
    )


def _held(held: Mapping[str, Any]) -> str:
    """What is held now, at what rate, and all that has been paid."""
    holding = [replica for replica in held["replicas"] if replica["started_at"] is not None]
    num_cpus = sum(replica["num_cpus"] for replica in holding)
    num_gpus = sum(replica["num_gpus"] for replica in holding)
    rate = num_cpus * held["cpu_hour_usd"] + num_gpus * held["gpu_hour_usd"]
    total = sum(cost["usd"] for cost in held["costs"])
    return f"holds {num_cpus:g} CPUs and {num_gpus} GPUs for ${money(rate)} an hour; ${money(total)} so far"


def _run_row(run: Mapping[str, Any], last: Mapping[str, Any] | None) -> RunRow:
    num_steps = 0 if last is None else last["step"] + 1
    return RunRow(
        run=run["id"],
        state=run["state"],
        step=f"{num_steps}/{run['info'].get('total_steps', '?')}",
        reward=number(None if last is None else last["metrics"].get(REWARD)),
    )


def _function_row(function: Mapping[str, Any], usd: float) -> FunctionRow:
    return FunctionRow(
        function=function["name"],
        ready=function["num_ready"],
        pending=function["num_pending"],
        total=function["num_replicas"],
        in_flight=function["num_in_flight"],
        queued=function["num_queued"],
        scale=f"{function['min_scale']}–{function['max_scale'] or UNLIMITED}",
        cost=f"${money(usd)}",
        revision=_traffic(function),
        state="" if function["ready"] else function["reason"] or "not ready",
    )


def _traffic(function: Mapping[str, Any]) -> str:
    """``rollout-00002``; ``00001 90%, 00002 10%`` while requests are split."""
    serving = [revision for revision in function["revisions"] if revision["percent"] > 0]
    if len(serving) < 2:
        return str(serving[0]["name"] if serving else function["revision"])
    names = (revision["name"].removeprefix(f"{function['name']}-") for revision in serving)
    return ", ".join(f"{name} {revision['percent']}%" for name, revision in zip(names, serving, strict=True))


def _replica_row(replica: Mapping[str, Any], now: float) -> ReplicaRow:
    began = replica["started_at"] if replica["started_at"] is not None else replica["scheduled_at"]
    return ReplicaRow(
        replica=replica["instance"],
        state=replica["state"] + (f": {replica['reason']}" if replica["reason"] else ""),
        age=duration(max(0.0, now - began)),
        in_flight=replica["num_in_flight"],
        cost=f"${money(replica['usd'])}" if replica["started_at"] is not None else NOTHING,
        revision=replica["revision"],
    )
