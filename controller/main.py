"""The controller's process: settings → store, platform, supervisor, API. One process, without torch.

``serve_local`` is the stack on one machine: a Redis of our own unless ``REDIS_URL`` names one, the functions as
processes behind a proxy, and the REST API. ``serve_cluster`` has the functions on a cluster: Redis and they are there
already. ``python -m controller.main`` and ``rlhfless up`` run the one that the settings ask for.
"""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvicorn

from controller.api.app import make_api
from controller.cli.up import serve as up
from controller.platforms.base import FunctionState, Platform
from controller.platforms.editing import FunctionEditor
from controller.platforms.knative.cluster_access import find_access
from controller.platforms.knative.platform import KnativePlatform
from controller.platforms.knative.settings import KnativeSettings
from controller.platforms.local.editor import ChangedManifests, LocalEditor
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.redis_server import RedisServer
from controller.platforms.local.settings import LocalSettings
from controller.runs.function_info import Announced
from controller.runs.function_swaps import FunctionSwaps
from controller.runs.preflight import ping
from controller.runs.service import RunService
from controller.runs.state import RunState
from controller.runs.supervisor import Supervisor
from controller.settings import (
    ClusterSettings,
    ControllerSettings,
    SettingsInvalid,
    function_environment,
    read_token_file,
)
from shared.service.ending import end_task
from shared.store.base import RunStore
from shared.store.opening import open_blobs, open_cache, open_prefix_kv, redis_store
from shared.store.redis_connection import RedisConnection

log = logging.getLogger(__name__)

SHUTDOWN_S = 5
"""Time that open event streams have to end."""
REDIS_PATIENCE_S = 3.0
"""How long a configured Redis is waited for at the start; later it may be away for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where the store is."""

    url: str
    password: str | None


async def serve(settings: ControllerSettings, *, on_ready: Callable[[str], None]) -> None:
    """Run the controller where the settings say, until SIGINT or SIGTERM; ``on_ready`` gets the API's URL."""
    if settings.cluster is None:
        await serve_local(settings, on_ready=on_ready)
    else:
        await serve_cluster(settings, settings.cluster, on_ready=on_ready)


async def serve_cluster(
    settings: ControllerSettings, cluster: ClusterSettings, *, on_ready: Callable[[str], None]
) -> None:
    """Drive functions of a cluster. Raises ``SettingsInvalid``, ``AccessInvalid``, ``KubeError``, ``StoreUnavailable``.

    Runs are in Redis: a controller that is restarted, or started elsewhere, goes on with them.
    """
    if settings.redis_url is None or settings.token_file is None:
        raise SettingsInvalid("functions of a cluster need REDIS_URL and RLHFLESS_TOKEN_FILE")
    token = read_token_file(settings.token_file, "RLHFLESS_TOKEN_FILE")
    with keeping_state(settings):
        settings.dataset_root.mkdir(exist_ok=True)
    knative = KnativeSettings(access=find_access(cluster), holder=cluster.holder, ingress_url=cluster.ingress_url)
    listener = listen(settings.api_host, settings.api_port)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        redis_at = await stack.enter_async_context(redis_address(settings))
        platform = await stack.enter_async_context(KnativePlatform(knative))
        await serve_api(settings, redis_at, platform, platform.editor, token, listener, on_ready=on_ready)


async def serve_local(settings: ControllerSettings, *, on_ready: Callable[[str], None]) -> None:
    """Run the stack in the foreground until SIGINT or SIGTERM; ``on_ready`` gets the API's URL.

    Leaves no process behind. Raises ``SettingsInvalid``, ``RedisServerError``, ``StoreUnavailable`` and the platform's
    own errors.
    """
    token_file = settings.state_dir / "token"
    with keeping_state(settings):
        token = ensure_token(token_file)
    listener = listen(settings.api_host, settings.api_port)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        if settings.own_memory is not None:
            # After the functions, which still use it: memory that nobody would free.
            stack.callback(shutil.rmtree, settings.own_memory, ignore_errors=True)
        redis_at = await stack.enter_async_context(redis_address(settings))
        manifests = ChangedManifests()
        platform = LocalPlatform(local_settings(settings, redis_at, token_file), read=manifests.read)
        await stack.enter_async_context(platform)
        editor = LocalEditor(platform, manifests)
        await serve_api(settings, redis_at, platform, editor, token, listener, on_ready=on_ready)


@contextlib.asynccontextmanager
async def redis_address(settings: ControllerSettings) -> AsyncIterator[RedisAddress]:
    """The configured Redis, or one of our own for as long as the context is open.

    Raises ``StoreUnavailable`` where the configured one does not answer, ``ValueError`` for a URL that names none, and
    ``RedisServerError``, having cancelled what goes on in the context, where our own ends again and again.
    """
    if settings.redis_url is not None:
        redis = RedisConnection(settings.redis_url, password=settings.redis_password, retry_for_s=REDIS_PATIENCE_S)
        try:
            await redis.command("PING")
        finally:
            await redis.close()
        yield RedisAddress(url=settings.redis_url, password=settings.redis_password)
        return
    server = RedisServer(settings.state_dir / "redis")
    await server.start()
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(server.failed(), name="redis given up")
            yield RedisAddress(url=server.url, password=server.password)
            watching.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await server.stop()


async def serve_api(
    settings: ControllerSettings,
    redis_at: RedisAddress,
    platform: Platform,
    editor: FunctionEditor,
    token: str,
    listener: socket.socket,
    *,
    on_ready: Callable[[str], None],
) -> None:
    """Serve the REST API on the socket and drive runs, until the process is told to end."""
    redis = RedisConnection(redis_at.url, password=redis_at.password)
    cache = open_cache(settings.prefix_kv, redis_at.url, redis_at.password)
    store = redis_store(redis, open_prefix_kv(settings.prefix_kv, cache))
    blobs = open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes)
    swaps = FunctionSwaps(
        platform, editor, partial(ping_function, platform, token=token), run_goes_on=partial(run_going_on, store.runs)
    )
    supervisor = Supervisor(settings, store, blobs, platform, token=token, swaps=swaps)
    swaps.on_request = supervisor.wake
    service = RunService(settings, store, blobs, platform, supervisor)
    tokens = api_tokens(settings)
    server = uvicorn.Server(
        uvicorn.Config(
            make_api(service, token=tokens.user, admin_token=tokens.admin, swaps=swaps),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
    )
    driving = asyncio.create_task(supervisor.run_forever(), name="supervisor")
    url = f"http://{settings.api_host}:{listener.getsockname()[1]}"
    try:
        write_address(settings, url)
        on_ready(url)
        await server.serve(sockets=[listener])
    finally:
        settings.address_file.unlink(missing_ok=True)
        failure = await end_task(driving)
        await redis.close()
        await cache.close()
        if failure is not None:
            raise failure


async def ping_function(platform: Platform, function: FunctionState, *, token: str) -> Announced:
    """Ask a changed function what it is. Raises ``PreflightFailed`` and ``FunctionUnfit``."""

    async def notify(line: str) -> None:
        log.warning("%s", line)

    return await ping(platform, function, token=token, notify=notify)


async def run_going_on(runs: RunStore) -> str | None:
    """The id of a run that uses the functions now, whichever controller drives it."""
    going_on = (RunState.RUNNING, RunState.PAUSED)
    return next((record.id for record in await runs.list() if record.state in going_on), None)


@contextlib.contextmanager
def keeping_state(settings: ControllerSettings) -> Iterator[None]:
    """The state folder, made where it is missing. Raises ``SettingsInvalid`` for what cannot be written in it."""
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SettingsInvalid(
            f"cannot keep state in {settings.state_dir}: {error.strerror}. Set RLHFLESS_STATE_DIR to a folder that can "
            "be written"
        ) from error


def local_settings(settings: ControllerSettings, redis_at: RedisAddress, token_file: Path) -> LocalSettings:
    """The local platform's part of the settings, with what every function's environment needs."""
    machine = settings.machine
    secret = {} if redis_at.password is None else {"REDIS_PASSWORD": redis_at.password}
    return LocalSettings(
        manifests_dir=settings.manifests,
        log_dir=settings.state_dir / "logs",
        num_cpus=machine.num_cpus,
        memory_bytes=machine.memory_bytes,
        num_gpus=machine.num_gpus,
        gpu_devices=machine.gpu_devices,
        python_environments=machine.python_environments,
        base_environment=function_environment(),
        environment={
            "REDIS_URL": redis_at.url,
            "REDIS_PASSWORD": "",
            "REDIS_CACHE_URL": settings.prefix_kv.cache_url or "",
            "REDIS_CACHE_PASSWORD": settings.prefix_kv.cache_password or "",
            "RLHFLESS_PREFIX_KV_URL": settings.prefix_kv.url,
            "RLHFLESS_PREFIX_KV_BYTES": str(settings.prefix_kv.budget_bytes),
            "RLHFLESS_BLOB_URL": settings.blob_url,
            "RLHFLESS_BLOB_BUDGET_BYTES": str(settings.blob_budget_bytes),
            "RLHFLESS_TOKEN_FILE": str(token_file),
            "RLHFLESS_ROOTS": ":".join(map(str, settings.roots)),
            "RLHFLESS_ALLOW_HUB": "1" if settings.allow_hub else "0",
            "RLHFLESS_BIND": "127.0.0.1",
            **settings.function_variables,
            **secret,
        },
        python=sys.executable,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTokens:
    """What the REST API asks of its callers. None: nothing."""

    user: str | None
    admin: str | None


def api_tokens(settings: ControllerSettings) -> ApiTokens:
    """The API's tokens from their files. Raises ``SettingsInvalid``."""
    named = (
        (settings.api_token_file, "RLHFLESS_API_TOKEN_FILE"),
        (settings.admin_token_file, "RLHFLESS_ADMIN_TOKEN_FILE"),
    )
    user, admin = (None if path is None else read_token_file(path, variable) for path, variable in named)
    if admin is not None and admin == user:
        raise SettingsInvalid("RLHFLESS_ADMIN_TOKEN_FILE has the API's own token: make another one for admins")
    return ApiTokens(user=user, admin=admin)


def ensure_token(path: Path) -> str:
    """The shared token of the functions; made at the first start, readable by this user only."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(24))
    return path.read_text().strip()


def listen(host: str, port: int) -> socket.socket:
    """A socket for the API. Raises ``SettingsInvalid`` where the port is taken."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise SettingsInvalid(
            f"the API cannot listen on {host}:{port}: {error.strerror}. Set RLHFLESS_API_PORT to a free port, "
            "or to 0 for any"
        ) from error


def write_address(settings: ControllerSettings, url: str) -> None:
    """Leave the API's address where the command line looks for it."""
    token_file = str(settings.api_token_file) if settings.api_token_file else None
    partial = settings.address_file.with_suffix(".partial")
    partial.write_text(json.dumps({"url": url, "token_file": token_file, "pid": os.getpid()}))
    partial.rename(settings.address_file)


def main() -> None:
    """``python -m controller.main``: the same as ``rlhfless up``, with all of its log."""
    sys.exit(up(verbose=True))


if __name__ == "__main__":
    main()
