"""What the end-to-end tests share: a tiny model with its data, and one stack for those that leave it as it was."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.in_process import Parts, composed
from tests.e2e.reference_run import ReferenceRun, long_config, short_config
from tests.e2e.stack import Stack, running_stack
from tests.e2e.tiny_model import make_tiny_model
from tests.e2e.workspace import Workspace, make_workspace


@pytest.fixture(scope="package")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The files that runs name."""
    workspace = make_workspace(tmp_path_factory.mktemp("workspace"))
    make_tiny_model(workspace.model)
    return workspace


@pytest.fixture(scope="package")
def stack(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for all: its first start of a function costs seconds, the next ones fractions."""
    with running_stack(workspace, tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def parts(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Parts]:
    """The controller's parts in this process, on a platform of their own."""
    async with composed(workspace, tmp_path_factory.mktemp("parts")) as parts:
        yield parts


@pytest.fixture(scope="package")
def short_run(stack: Stack, workspace: Workspace) -> ReferenceRun:
    """What a short run comes to undisturbed."""
    return ReferenceRun.of(stack.api, short_config(workspace))


@pytest.fixture(scope="package")
def long_run(stack: Stack, workspace: Workspace) -> ReferenceRun:
    """What a long run comes to undisturbed."""
    return ReferenceRun.of(stack.api, long_config(workspace))


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state folder for a stack of the test's own."""
    return tmp_path / "state"
