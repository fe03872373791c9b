"""Routes of the controller itself: functions, replicas, health, metrics."""

import socket
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controller.api.errors import NotReady
from controller.api.models import FunctionList, FunctionView, Status
from controller.api.openapi import PROMETHEUS_TEXT
from controller.api.replica_models import ReplicaList
from controller.api.request import Service
from controller.runs.state import RunState
from shared.contracts.errors import StoreUnavailable
from shared.observability.metrics import RUNS

router = APIRouter()


@router.get("/v1/functions", tags=["functions"])
async def list_functions(service: Service) -> FunctionList:
    """The functions that runs are made of, and their replicas."""
    return FunctionList(functions=tuple(FunctionView.of(state) for state in await service.functions()))


@router.get("/v1/replicas", tags=["functions"])
async def list_replicas(
    service: Service,
    ended: Annotated[
        bool, Query(description="Also replicas that have ended, as long as the platform remembers them.")
    ] = False,
) -> ReplicaList:
    """The replicas of all functions with their state, and what they have cost since the controller started."""
    held = await service.holdings()
    return ReplicaList.of(held, platform=service.platform_name, host=socket.gethostname(), ended=ended)


@router.get("/healthz", tags=["health"])
async def healthz() -> Status:
    """The process is alive."""
    return Status(status="ok")


@router.get("/readyz", tags=["health"])
async def readyz(request: Request, service: Service) -> Status:
    """The controller can serve; if not, 503 says why."""
    reasons = [*request.app.state.waiting_for(), *await service.unready()]
    if reasons:
        raise NotReady(reasons)
    return Status(status="ready")


@router.get("/metrics", tags=["health"], response_class=Response, responses=PROMETHEUS_TEXT)
async def metrics(service: Service) -> Response:
    """Metrics in Prometheus' text format."""
    await _count_runs(service)
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def _count_runs(service: Service) -> None:
    try:
        counts = Counter(record.state for record in await service.list())
    except StoreUnavailable:
        # The other metrics are most wanted now. A gauge that is not there says more than an old number.
        RUNS.clear()
        return
    for state in RunState:
        RUNS.labels(state).set(counts[state])
