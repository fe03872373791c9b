"""The images, built once for all tests: some minutes, and some gigabytes of a temporary folder."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.builder import Builder, Container, missing


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """A store of images with the base in it.

    ``RLHFLESS_TEST_WHEELS``: a folder with PyTorch's CPU build. ``RLHFLESS_TEST_BASE_TAR``: a base made before.
    """
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    wheels, base_tar = (os.environ.get(f"RLHFLESS_TEST_{name}") for name in ("WHEELS", "BASE_TAR"))
    builder = Builder(
        folder=tmp_path_factory.mktemp("images"),
        base_tar=Path(base_tar) if base_tar else None,
        wheels=Path(wheels) if wheels else None,
    )
    builder.make_base()
    yield builder
    builder.remove()


@pytest.fixture(scope="session")
def function_image(builder: Builder) -> str:
    return builder.build("function-cpu")


@pytest.fixture(scope="session")
def controller_image(builder: Builder) -> str:
    return builder.build("controller")


@pytest.fixture(scope="session")
def function(builder: Builder, function_image: str) -> Container:
    return builder.container(function_image)


@pytest.fixture(scope="session")
def controller(builder: Builder, controller_image: str) -> Container:
    return builder.container(controller_image)
