"""Functions in processes of their own, before the session's Redis and a folder of blobs."""

from collections.abc import Iterator

import pytest

from controller.platforms.local.redis_server import RedisServer
from shared.store.base import Store
from shared.store.directory_blobs import DirectoryBlobs
from shared.store.opening import redis_store
from shared.store.redis_connection import RedisConnection
from tests.contract.function_process import FunctionProcess, Functions


@pytest.fixture(scope="session")
def functions(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Functions:
    """Starts replicas."""
    folder = tmp_path_factory.mktemp("functions")
    return Functions(folder, redis_url=redis_server.url, redis_password=redis_server.password)


@pytest.fixture(scope="session")
def reward(functions: Functions) -> Iterator[FunctionProcess]:
    """A replica of the reward function, for all tests that leave it as it is."""
    with functions.running("reward") as function:
        yield function


@pytest.fixture(scope="session")
def rollout(functions: Functions) -> Iterator[FunctionProcess]:
    """A replica of the rollout function, for all tests that leave it as it is."""
    with functions.running("rollout") as function:
        yield function


@pytest.fixture
def store(redis: RedisConnection) -> Store:
    """The store that the functions use, empty."""
    return redis_store(redis)


@pytest.fixture
def blobs(functions: Functions) -> DirectoryBlobs:
    """The blobs that the functions use."""
    return DirectoryBlobs(functions.blobs)
