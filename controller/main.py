"""The controller's process: settings → store, platform, supervisor, API. One process, without torch.

``serve_local`` is the stack on one machine: a Redis of our own unless ``REDIS_URL`` names one, the functions as
processes behind a proxy, and the REST API. ``serve_cluster`` has the functions on a cluster: Redis and they are there
already, or will be. ``python -m controller.main`` and ``rlhfless up`` run the one that the settings ask for.
"""

import asyncio
import contextlib
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator

from controller.api.app import make_api
from controller.api.auth import api_tokens
from controller.api.serving import listen, serve_beside, write_address
from controller.cli.up import serve as up
from controller.platforms.base import Platform
from controller.platforms.editing import FunctionEditor
from controller.platforms.knative.cluster_access import find_access
from controller.platforms.knative.platform import KnativePlatform
from controller.platforms.knative.settings import KnativeSettings
from controller.platforms.local.editor import ChangedManifests, LocalEditor
from controller.platforms.local.local_settings import ensure_token, local_settings
from controller.platforms.local.platform import LocalPlatform
from controller.platforms.local.redis_address import RedisAddress, redis_address
from controller.runs.service import RunService
from controller.runs.supervisor import Supervisor
from controller.runs.swapping import function_swaps
from controller.settings import ClusterSettings, ControllerSettings, SettingsInvalid, read_token_file
from shared.store.opening import open_blobs, open_cache, open_prefix_kv, redis_store
from shared.store.redis_connection import RedisConnection

WAITING_FOR_PLATFORM = "the platform of the functions does not answer"


async def serve(settings: ControllerSettings, *, on_ready: Callable[[str], None]) -> None:
    """Run the controller where the settings say, until SIGINT or SIGTERM; ``on_ready`` gets the API's URL."""
    if settings.cluster is None:
        await serve_local(settings, on_ready=on_ready)
    else:
        await serve_cluster(settings, settings.cluster, on_ready=on_ready)


async def serve_cluster(
    settings: ControllerSettings, cluster: ClusterSettings, *, on_ready: Callable[[str], None]
) -> None:
    """Drive functions of a cluster. Raises ``SettingsInvalid``, ``AccessInvalid``, ``KubeError``.

    Runs are in Redis: a controller that is restarted, or started elsewhere, goes on with them. All of a cluster starts
    at once: it is not ready, and waits, until Redis and the Kubernetes API answer.
    """
    if settings.redis_url is None or settings.token_file is None:
        raise SettingsInvalid("functions of a cluster need REDIS_URL and RLHFLESS_TOKEN_FILE")
    token = read_token_file(settings.token_file, "RLHFLESS_TOKEN_FILE")
    with keeping_state(settings):
        settings.dataset_root.mkdir(exist_ok=True)
    knative = KnativeSettings(access=find_access(cluster), holder=cluster.holder, ingress_url=cluster.ingress_url)
    redis_at = RedisAddress(url=settings.redis_url, password=settings.redis_password)
    with contextlib.closing(listen(settings.api_host, settings.api_port)) as listener:
        platform = KnativePlatform(knative)
        try:
            await serve_api(
                settings, redis_at, platform, platform.editor, token, listener, begin=platform.start, on_ready=on_ready
            )
        finally:
            await platform.stop()


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
        await serve_api(settings, redis_at, platform, editor, token, listener, begin=_at_once, on_ready=on_ready)


async def serve_api(
    settings: ControllerSettings,
    redis_at: RedisAddress,
    platform: Platform,
    editor: FunctionEditor,
    token: str,
    listener: socket.socket,
    *,
    begin: Callable[[], Awaitable[None]],
    on_ready: Callable[[str], None],
) -> None:
    """Serve the REST API on the socket and, after ``begin``, drive runs, until the process is told to end."""
    tokens = api_tokens(settings)
    redis = RedisConnection(redis_at.url, password=redis_at.password)
    cache = open_cache(settings.prefix_kv, redis_at.url, redis_at.password)
    store = redis_store(redis, open_prefix_kv(settings.prefix_kv, cache))
    blobs = open_blobs(settings.blob_url, redis, budget_bytes=settings.blob_budget_bytes)
    swaps = function_swaps(platform, editor, store.runs, token=token)
    supervisor = Supervisor(settings, store, blobs, platform, token=token, swaps=swaps)
    swaps.on_request = supervisor.wake
    service = RunService(settings, store, blobs, platform, supervisor)
    begun = asyncio.Event()

    async def drive() -> None:
        await begin()
        begun.set()
        await supervisor.run_forever()

    api = make_api(
        service,
        token=tokens.user,
        admin_token=tokens.admin,
        swaps=swaps,
        waiting_for=lambda: () if begun.is_set() else (WAITING_FOR_PLATFORM,),
    )
    url = f"http://{settings.api_host}:{listener.getsockname()[1]}"
    try:
        write_address(settings, url)
        on_ready(url)
        await serve_beside(asyncio.create_task(drive(), name="supervisor"), api, listener)
    finally:
        settings.address_file.unlink(missing_ok=True)
        await redis.close()
        await cache.close()


async def _at_once() -> None:
    """Nothing is waited for."""


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


def main() -> None:
    """``python -m controller.main``: the same as ``rlhfless up``, with all of its log."""
    sys.exit(up(verbose=True))


if __name__ == "__main__":
    main()
