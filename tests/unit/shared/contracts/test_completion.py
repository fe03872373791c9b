"""Names of completions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.completion import SampleId, Stay, num_migrations


@given(st.text(max_size=30), st.integers(0, 10**9))
def test_a_sample_is_read_as_it_is_printed(row_uid: str, sample: int) -> None:
    id = SampleId(row_uid, sample)
    assert SampleId.parse(str(id)) == id


def test_samples_sort_by_row_then_by_number() -> None:
    ids = [SampleId("b", 0), SampleId("a", 10), SampleId("a", 9)]
    assert sorted(ids) == [SampleId("a", 9), SampleId("a", 10), SampleId("b", 0)]


@pytest.mark.parametrize("text", ["", "row", "row:", "row:x"])
def test_another_text_is_no_sample(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        SampleId.parse(text)


@pytest.mark.parametrize(("instances", "expected"), [("", 0), ("a", 0), ("aa", 0), ("aab", 1), ("aba", 2)])
def test_going_on_at_another_replica_is_a_migration(instances: str, expected: int) -> None:
    stays = [
        Stay(shard=0, instance=name, started_at=1.0, first_token_at=None, ended_at=2.0, num_tokens=0)
        for name in instances
    ]
    assert num_migrations(stays) == expected
