"""The FastAPI application around a process's stages: health, information, metrics, and one route per stage."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import ValidationError

from shared.contracts.call import StageCall
from shared.contracts.errors import InvalidInput, StageError
from shared.contracts.info import FunctionInfo
from shared.observability.metrics import CALL_SECONDS, CALLS, CALLS_IN_FLIGHT
from shared.service.auth import TokenAuth
from shared.service.errors import invalid_body, problem_response, unexpected_response
from shared.service.handler import CallContext, StageHandler, StopFlag, Stopwatch
from shared.service.protocol import Replica, StageProtocol
from shared.service.settings import FunctionSettings
from shared.store.opening import open_blobs, redis_store
from shared.store.redis_connection import RedisConnection

log = logging.getLogger(__name__)


def make_app(settings: FunctionSettings, handlers: Sequence[StageHandler[Any, Any]], *, started_at: float) -> FastAPI:
    """An application that serves the handlers' stages. ``started_at``: Unix time at which the process began."""
    redis = RedisConnection(settings.redis_url, password=settings.redis_password)
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for handler in handlers:
            await handler.close()
        executor.shutdown(wait=False, cancel_futures=True)
        await redis.close()

    app = FastAPI(title=f"rlhfless {', '.join(settings.stages)}", lifespan=lifespan)
    app.add_middleware(TokenAuth, token=settings.token)
    _add_health(app, settings)

    base = CallContext(
        store=redis_store(redis),
        blobs=open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes),
        owner="",
        instance=settings.instance,
        deadline_at=0.0,
        stop=StopFlag(),
        watch=Stopwatch(),
        executor=executor,
    )
    replica = Replica(
        instance=settings.instance, revision=settings.revision, started_at=started_at, ready_at=time.time()
    )
    gate = asyncio.Lock()
    for handler in handlers:
        protocol = StageProtocol(handler, replica, base, gate)
        app.add_api_route(handler.stage.route, _stage_route(handler, protocol), methods=["POST"])
    return app


def _add_health(app: FastAPI, settings: FunctionSettings) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> dict[str, str]:
        # Neither Redis nor weights: a store that restarts must not take every replica out of service.
        return {"status": "ready"}

    @app.get("/v1/info")
    async def info() -> FunctionInfo:
        return FunctionInfo(stages=settings.stages, instance=settings.instance, revision=settings.revision)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _stage_route(handler: StageHandler[Any, Any], protocol: StageProtocol) -> Callable[[Request], Awaitable[Response]]:
    call_type = StageCall[handler.inputs]  # type: ignore[name-defined]  # the handler's type is a value here

    async def serve(request: Request) -> Response:
        began = time.perf_counter()
        with CALLS_IN_FLIGHT.labels(handler.stage).track_inprogress():
            response = await _answer(request, handler, protocol, call_type)
        CALLS.labels(handler.stage, str(response.status_code)).inc()
        CALL_SECONDS.labels(handler.stage).observe(time.perf_counter() - began)
        return response

    serve.__doc__ = f"Serve one {handler.stage} call."
    return serve


async def _answer(
    request: Request, handler: StageHandler[Any, Any], protocol: StageProtocol, call_type: type[StageCall[Any]]
) -> Response:
    stop = StopFlag()
    try:
        try:
            call = call_type.model_validate_json(await request.body())
        except ValidationError as error:
            raise invalid_body(error) from error
        if call.key.stage is not handler.stage:
            raise InvalidInput(f"key.stage: this route serves {handler.stage}, not {call.key.stage}")
        watcher = asyncio.create_task(_watch_caller(request, stop))
        try:
            reply = await protocol.serve(call, stop)
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        return Response(reply, media_type="application/json")
    except StageError as error:
        log.info("%s refused: %s", handler.stage, error.message, extra={"code": error.code})
        return problem_response(error)
    except Exception as error:
        log.exception("%s failed", handler.stage)
        return unexpected_response(error)


async def _watch_caller(request: Request, stop: StopFlag) -> None:
    """Stop computing when the caller is gone: the platform then counts this replica as idle."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        stop.set("the caller is gone")
