"""Names that are safe in keys, paths and URLs."""

import pytest

from shared.contracts.ids import is_identifier


@pytest.mark.parametrize("text", ["a", "0", "run-1", "a" * 63])
def test_identifiers(text: str) -> None:
    assert is_identifier(text)


@pytest.mark.parametrize("text", ["", "-a", "A", "a_b", "a/b", "a.b", "..", "a\n", "a b", "é", "a" * 64, "{a}", "a:b"])
def test_other_texts_are_no_identifiers(text: str) -> None:
    assert not is_identifier(text)
