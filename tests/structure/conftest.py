"""What the tests of the source tree share."""

from collections.abc import Iterator

import pytest

from tests.structure.source_tree import syntax_of, text_of


@pytest.fixture(autouse=True, scope="package")
def forgotten() -> Iterator[None]:
    """The tree is forgotten afterwards: its nodes are a million objects, in every garbage collection from then on."""
    yield
    syntax_of.cache_clear()
    text_of.cache_clear()
