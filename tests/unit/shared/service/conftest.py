"""What the tests of the stage protocol stand on."""

import pytest

from tests.unit.shared.service.stage_fakes import World


@pytest.fixture
def world() -> World:
    """A store in memory, and the replicas before it."""
    return World()
