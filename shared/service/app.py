"""The FastAPI application around a process's stages: health, information, metrics, and one route per stage."""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from shared.contracts.errors import Problem
from shared.contracts.info import FunctionInfo
from shared.service.auth import TokenAuth
from shared.service.carried_model import CarriedModel, read_carried_model
from shared.service.errors import problem_answer
from shared.service.handler import StageHandler
from shared.service.replica import Replica
from shared.service.route import StageRoute
from shared.service.settings import FunctionSettings, SettingsInvalid
from shared.service.side_protocol import BySide, SpeaksMore
from shared.store.opening import open_blobs, open_cache, open_prefix_kv, redis_store
from shared.store.recent_blobs import RecentBlobs
from shared.store.redis_connection import RedisConnection


def make_app(settings: FunctionSettings, handlers: Sequence[StageHandler[Any, Any]], *, started_at: float) -> FastAPI:
    """The application of a process. ``started_at``: Unix time at which it began.

    Raises ``SettingsInvalid`` for URLs that name no store and a model that is none. Whether the store answers shows at
    the first call.
    """
    try:
        redis = RedisConnection(settings.redis_url, password=settings.redis_password)
        cache = open_cache(settings.prefix_kv, settings.redis_url, settings.redis_password)
        blobs = open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes)
        prefix_kv = open_prefix_kv(settings.prefix_kv, cache)
        carries = None if settings.model is None else read_carried_model(settings.model)
    except ValueError as error:
        raise SettingsInvalid(str(error)) from None
    replica = Replica(
        instance=settings.instance,
        revision=settings.revision,
        started_at=started_at,
        ready_at=time.time(),
        store=redis_store(redis, prefix_kv),
        blobs=RecentBlobs(blobs) if len(settings.stages) > 1 else blobs,
        executor=ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute"),
    )

    async def close() -> None:
        await redis.close()
        await cache.close()

    return serve_stages(handlers, replica, token=settings.token, close=close, carries=carries)


def serve_stages(
    handlers: Sequence[StageHandler[Any, Any]],
    replica: Replica,
    *,
    token: str,
    close: Callable[[], Awaitable[None]],
    carries: CarriedModel | None = None,
) -> FastAPI:
    """The handlers' stages as an application of this replica. ``close`` is awaited last."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(close)
            stack.callback(replica.executor.shutdown, wait=False, cancel_futures=True)
            for handler in handlers:
                stack.push_async_callback(handler.close)
            yield

    stages = tuple(handler.stage for handler in handlers)
    app = FastAPI(title=f"rlhfless {', '.join(stages)}", lifespan=lifespan, openapi_url=None)
    app.add_middleware(TokenAuth, token=token)
    for handler in handlers:
        if isinstance(handler, SpeaksMore):
            app.add_middleware(BySide, protocol=handler.side_protocol(replica), token=token)
    app.add_exception_handler(HTTPException, _http_problem)
    info = FunctionInfo(
        stages=stages,
        instance=replica.instance,
        revision=replica.revision,
        model=carries.path if carries else None,
        tokenizer_hash=carries.tokenizer_hash if carries else None,
    )
    _add_information(app, info)
    for handler in handlers:
        route = StageRoute(handler, replica)
        app.add_api_route(handler.stage.route, route.serve, methods=["POST"], name=handler.stage)
    return app


def _add_information(app: FastAPI, about: FunctionInfo) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        # Neither Redis nor weights: a store that restarts must not take every replica out of service.
        return {"status": "ready"}

    @app.get("/v1/info", response_model_exclude_none=True)
    async def info() -> FunctionInfo:
        return about

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such path, no such method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}: is the stage served by this function?"
    return problem_answer(
        Problem(code=f"http_{error.status_code}", message=message), error.status_code, dict(error.headers or {})
    )
